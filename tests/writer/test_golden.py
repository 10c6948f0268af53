"""The writers give the bytes that the reference gave for the same samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.golden import GOLDEN, golden_values

from streaming_core import CSVWriter, JSONWriter, MDSWriter, load_index, open_store
from streaming_core._codec import parse_compression
from streaming_core._read import fetch_shard

if TYPE_CHECKING:
    from pathlib import Path

WRITERS = {"jsonl": JSONWriter, "csv": CSVWriter}
NAMES = [path.parent.name for path in sorted(GOLDEN.glob("*/values.json"))]
ID_NAMES = [path.name for path in sorted(GOLDEN.glob("ids_*"))]


def _without_zip_contents(index: Any) -> Any:
    for shard in index["shards"]:
        for key in ("zip_data", "zip_meta"):
            if shard.get(key):
                shard[key] = {"basename": shard[key]["basename"]}
    return index


@pytest.mark.parametrize("by", ["write", "write_batch"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_samples_give_golden_files(tmp_path: Path, name: str, by: str) -> None:
    """Raw bytes and index equal the reference's; compressed files do once decompressed."""
    columns, kwargs, samples = golden_values(name)
    with WRITERS.get(name, MDSWriter)(out=tmp_path / "out", columns=columns, **kwargs) as writer:
        if by == "write":
            for sample in samples:
                writer.write(sample)
        else:
            writer.write_batch({key: [sample[key] for sample in samples] for key in columns})
    ours = json.loads((tmp_path / "out/index.json").read_bytes())
    theirs = json.loads((GOLDEN / name / "index.json").read_bytes())
    codec = parse_compression(kwargs.get("compression"))
    if codec is None:
        index = (tmp_path / "out/index.json").read_bytes()
        assert index == (GOLDEN / name / "index.json").read_bytes()
    assert _without_zip_contents(ours) == _without_zip_contents(theirs)
    for shard in theirs["shards"]:
        for role in ("data", "meta"):
            raw, packed = shard.get(f"raw_{role}"), shard.get(f"zip_{role}")
            if raw is None:
                continue
            stored = (packed or raw)["basename"]
            both = [(folder / stored).read_bytes() for folder in (tmp_path / "out", GOLDEN / name)]
            if codec is not None:
                both = [codec.decompress(data, raw["bytes"]) for data in both]
            assert both[0] == both[1]


@pytest.mark.parametrize("name", ID_NAMES)
def test_shards_of_id_data_sets_are_written_the_same(tmp_path: Path, name: str) -> None:
    """Each shard of the data sets with even, ragged, single and tiny shards comes out the same."""
    table, store = load_index(GOLDEN / name), open_store(GOLDEN / name)
    for i in range(table.num_shards):
        info = table.shard(i)
        limit = info.schema.size_limit
        out = tmp_path / str(i)
        with MDSWriter(out=out, columns={"id": "int"}, size_limit=limit) as writer:
            for sample in fetch_shard(store, info):
                writer.write(sample)
        assert (out / "shard.00000.mds").read_bytes() == store.get(info.raw.basename)
