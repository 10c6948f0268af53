"""Large records are stored from where they lie, small ones from a buffer: no file tells which."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path

_SIZES = st.lists(st.sampled_from([0, 1, 300, 16_000, 40_000, 90_000]), max_size=24)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _values(sizes: list[int]) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes)]


def _write(folder: Path, samples: list[dict[str, Any]], how: str, **options: Any) -> None:
    columns = {"n": "int", "blob": "bytes"}
    with MDSWriter(out=folder, columns=columns, **options) as writer:
        if how == "samples":
            for sample in samples:
                writer.write(sample)
        elif how == "batch" and samples:
            writer.write_batch({name: [s[name] for s in samples] for name in columns})
        else:
            for sample in samples:  # batches of one: pieces and buffer take turns
                writer.write_batch({name: [sample[name]] for name in columns})


@settings(max_examples=examples(40))
@given(
    sizes=_SIZES,
    limit=st.sampled_from([None, 50_000, 200_000]),
    compression=st.sampled_from([None, None, "zstd"]),
    hashes=st.sampled_from([None, ["md5", "xxh64"]]),
)
def test_all_ways_of_writing_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    limit: int | None,
    compression: str | None,
    hashes: list[str] | None,
) -> None:
    """Whether a record is kept or copied depends on its neighbours; the files must not."""
    root = tmp_path_factory.mktemp("large")
    values = _values(sizes)
    samples = [{"n": number, "blob": value} for number, value in enumerate(values)]
    options = {"size_limit": limit, "compression": compression, "hashes": hashes}
    for how in ("samples", "batch", "ones"):
        _write(root / how, samples, how, **options)
    mutable = [{"n": number, "blob": bytearray(value)} for number, value in enumerate(values)]
    _write(root / "copied", mutable, "samples", **options)
    wanted = _files(root / "samples")
    for how in ("batch", "ones", "copied"):
        assert _files(root / how) == wanted


@pytest.mark.parametrize("how", ["samples", "batch"])
def test_a_value_that_changes_after_it_was_given_is_stored_as_it_was(
    tmp_path: Path, how: str
) -> None:
    """The caller may reuse a mutable buffer at once."""
    folder = tmp_path / how
    reused = bytearray(100_000)
    with MDSWriter(out=folder, columns={"blob": "bytes"}, size_limit=None) as writer:
        for number in range(20):
            reused[:] = bytes([number]) * len(reused)
            if how == "samples":
                writer.write({"blob": reused})
            else:
                writer.write_batch({"blob": [reused]})
        reused[:] = bytes([255]) * len(reused)
    (shard,) = [path for path in folder.iterdir() if path.suffix == ".mds"]
    data = shard.read_bytes()
    at = [data.find(bytes([number]) * 100_000) for number in range(20)]
    assert -1 not in at
    assert at == sorted(at)


def test_more_pieces_than_one_call_takes(tmp_path: Path) -> None:
    """A shard of several thousand pieces is written whole, past the system's limit for one call."""
    value = os.urandom(20_000)
    with MDSWriter(out=tmp_path / "out", columns={"blob": "bytes"}, size_limit=None) as writer:
        writer.write_batch({"blob": [value] * 3000})
    data = (tmp_path / "out" / "shard.00000.mds").read_bytes()
    header = data[: -3000 * 20_004]
    assert data[len(header) :] == (len(value).to_bytes(4, "little") + value) * 3000
