"""The names of mosaicml-streaming: which there are, what they do, and what is left out."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import streaming_core
from streaming_core import JSONWriter, LocalDataset, MDSWriter, StreamingDataset, mds_encodings
from streaming_core.errors import IndexInvalidError, UnsafeEncodingError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP: Final = (
    "CSVWriter JSONWriter LocalDataset MDSWriter Stream StreamingDataLoader StreamingDataset "
    "TSVWriter XSVWriter"
)
NAMES: Final = {
    "": f"{_TOP} __version__ base",
    "base": f"{_TOP} array compression constant dataloader dataset distributed format hashing "
    "local spanner stream util world",
    "base.array": "Array",
    "base.compression": "compress decompress get_compression_extension get_compressions "
    "is_compression",
    "base.constant": "TICK",
    "base.dataloader": "StreamingDataLoader",
    "base.dataset": "StreamingDataset",
    "base.distributed": "barrier get_local_rank get_local_world_size get_rank get_world_size "
    "maybe_init_dist",
    "base.format": "CSVWriter FileInfo JSONWriter MDSWriter Reader TSVWriter XSVWriter base "
    "get_index_basename index json mds reader_from_json xsv",
    "base.format.base": "reader",
    "base.format.base.reader": "FileInfo Reader reader_from_json",
    "base.format.index": "get_index_basename",
    "base.format.json": "JSONWriter",
    "base.format.mds": "MDSReader MDSWriter encodings reader writer",
    "base.format.mds.encodings": "Encoding get_mds_encoded_size get_mds_encodings "
    "is_mds_encoding is_mds_encoding_safe mds_decode mds_encode",
    "base.format.mds.reader": "MDSReader",
    "base.format.mds.writer": "MDSWriter",
    "base.format.xsv": "CSVWriter TSVWriter XSVWriter",
    "base.hashing": "get_hash get_hashes is_hash",
    "base.local": "LocalDataset",
    "base.spanner": "Spanner",
    "base.stream": "Stream streams_registry",
    "base.util": "bytes_to_int clean_stale_shared_memory get_import_exception_message "
    "get_list_arg merge_index number_abbrev_to_int retry wait_for_file_to_exist",
    "base.world": "World",
}
PRIVATE: Final = {"base.util": "_merge_index_from_root", "base.format.mds.encodings": "_encodings"}
"""Which public code imports all the same."""


def _module(name: str) -> Any:
    return importlib.import_module(f"streaming_core.mosaic.{name}".removesuffix("."))


@pytest.mark.parametrize("module", NAMES)
def test_modules_have_these_names(module: str) -> None:
    """All can be imported, listed, and reached from their package."""
    found = _module(module)
    assert sorted(found.__all__) == sorted(NAMES[module].split())
    for name in [*found.__all__, *PRIVATE.get(module, "").split()]:
        assert getattr(found, name) is not None
    assert set(found.__all__) <= set(dir(found))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = found.nothing


def test_classes_are_those_of_the_package() -> None:
    """So that `isinstance` holds whichever name was used."""
    for name in _TOP.split():
        assert getattr(_module(""), name) is getattr(_module("base"), name)
        assert getattr(_module(""), name) is getattr(streaming_core, name)
    assert _module("base.format.mds.encodings")._encodings is mds_encodings


def test_every_module_is_pinned() -> None:
    """And those that are left out are tested below."""
    root = Path(_module("").__file__).parent
    files = [path.relative_to(root).with_suffix("").parts for path in root.rglob("*.py")]
    names = {".".join(parts).removesuffix("__init__").removesuffix(".") for parts in files}
    assert names == {*NAMES, "_lazy"} | {name for name, _ in LEFT_OUT if "/" not in name}


LEFT_OUT: Final = [
    ("base.shared", "nothing is shared through /dev/shm"),
    ("base.storage", "register_store"),
    ("base.converters", "merge_index"),
    ("vision", "apply the transforms in __getitem__"),
    ("text", "tokenize in __getitem__"),
    ("multimodal", "decode the content in __getitem__"),
    ("base.dataset/_Iterator", "override __getitem__ or __iter__"),
    ("base.dataset/_ShardState", "use prepare_shard and evict_shard"),
    ("base.stream/download_file", "register_store"),
]


@pytest.mark.parametrize(("name", "advice"), LEFT_OUT)
def test_what_is_left_out_says_what_to_do_instead(name: str, advice: str) -> None:
    """Wherever it is imported from."""
    module, _, attribute = name.partition("/")
    with pytest.raises(ImportError, match="is left out") as caught:
        exec(f"from streaming_core.mosaic.{module} import {attribute or 'Anything'}")  # noqa: S102
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    "name", ["base.shared.prefix", "base.storage.download", "vision.base", "text.c4"]
)
def test_submodules_of_what_is_left_out_say_the_same(name: str) -> None:
    """An import of `streaming.vision.base` ends with the advice, too."""
    with pytest.raises(ImportError, match="is left out"):
        _module(name)


@pytest.mark.process
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import streaming_core.mosaic", "numpy streaming_reader streaming_writer torch"),
        ("from streaming_core.mosaic import MDSWriter", "streaming_reader torch"),
        ("from streaming_core.mosaic import StreamingDataset", "torch streaming_writer"),
        ("from streaming_core.mosaic.base.format.mds.encodings import mds_encode",
         "streaming_reader streaming_writer torch"),
        ("import streaming_core.mosaic as s; s.base.hashing.get_hashes()",
         "streaming_reader streaming_writer torch"),
        ("from streaming_core.mosaic.base.format import reader_from_json", "torch"),
    ],
)  # fmt: skip
def test_importing_costs_what_is_used(statement: str, unwanted: str) -> None:
    """And nothing more."""
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not set(unwanted.split()) & set(json.loads(done.stdout))


# --- one shard after the other --------------------------------------------------------------------


def _entries(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "index.json").read_text())["shards"]
    return entries


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Return a folder whose split `train` has some shards."""
    with MDSWriter(
        out=tmp_path / "train", columns={"id": "int", "t": "str"}, hashes=["md5"], size_limit=400
    ) as out:
        for number in range(50):
            out.write({"id": number, "t": str(number)})
    return tmp_path


def test_a_shard_is_read_on_its_own(shards: Path) -> None:
    """What its entry says, and its samples, counted from either end."""
    reader_from_json = _module("base.format").reader_from_json
    entries, seen = _entries(shards / "train"), list[int]()
    assert len(entries) > 3
    for entry in entries:
        shard = reader_from_json(str(shards), "train", entry)
        assert shard.samples == shard.size == len(shard) == entry["samples"]
        assert (shard.dirname, shard.split) == (str(shards), "train")
        assert shard.raw_data.basename == entry["raw_data"]["basename"]
        assert shard.raw_data.hashes == entry["raw_data"]["hashes"]
        assert shard.get_raw_size() == shard.raw_data.bytes == entry["raw_data"]["bytes"]
        assert (shard.zip_data, shard.raw_meta, shard.zip_meta) == (None, None, None)
        assert (shard.compression, shard.hashes, shard.size_limit) == (None, ["md5"], 400)
        assert (shard.column_names, shard.column_encodings) == (["id", "t"], ["int", "str"])
        assert shard.column_sizes == [8, None]
        assert shard[-1] == shard[len(shard) - 1] == shard.get_item(len(shard) - 1)
        assert shard[:2] == [shard[0], shard[1]]
        for row in (len(shard), -len(shard) - 1):
            with pytest.raises(IndexError):
                _ = shard[row]
        seen += [sample["id"] for sample in shard]
    assert seen == list(range(50))
    assert {path.name for path in shards.iterdir()} == {"train"}


def test_a_shard_is_made_of_the_words_of_its_entry(shards: Path) -> None:
    """As `MDSReader(**entry)` is, which lacks format and version."""
    entry = _entries(shards / "train")[1]
    del entry["format"], entry["version"]
    shard = _module("base.format.mds").MDSReader(str(shards), "train", **entry)
    assert shard[0]["t"] == str(shard[0]["id"])
    with pytest.raises(IndexInvalidError, match="raw_data"):
        _module("base.format.mds").MDSReader(str(shards), "train", samples=3)


def test_shards_of_other_formats_and_compressed_ones(tmp_path: Path) -> None:
    """Lines have a file of offsets, and what is compressed is expanded in place."""
    with JSONWriter(out=tmp_path, columns={"id": "int"}, compression="gz") as out:
        for number in range(9):
            out.write({"id": number})
    shard = _module("base.format").reader_from_json(tmp_path, None, _entries(tmp_path)[0])
    assert [sample["id"] for sample in shard] == list(range(9))
    assert shard.compression == "gz"
    assert shard.get_raw_size() == shard.raw_data.bytes + shard.raw_meta.bytes
    assert shard.zip_data.basename.endswith(".gz")
    assert shard.zip_meta.basename.endswith(".gz")


def test_pickled_columns_are_refused_until_they_are_allowed(tmp_path: Path) -> None:
    """By datasets when they are made, by shards when they are validated or read."""
    with MDSWriter(out=tmp_path, columns={"p": "pkl"}) as out:
        out.write({"p": {1, 2}})
    for opened in (lambda: StreamingDataset(local=tmp_path), lambda: LocalDataset(tmp_path)):
        with pytest.raises(ValueError, match="allow_unsafe_types=True") as caught:
            opened()
        assert isinstance(caught.value, UnsafeEncodingError)
    assert LocalDataset(tmp_path, allow_unsafe_types=True)[0] == {"p": {1, 2}}
    shard = _module("base.format").reader_from_json(tmp_path, None, _entries(tmp_path)[0])
    with pytest.raises(ValueError, match="allow_unsafe_types"):
        shard.validate(False)
    with pytest.raises(ValueError, match="allow_unsafe_types"):
        _ = shard[0]
    shard.validate(True)
    assert shard[0] == {"p": {1, 2}}


def test_datasets_have_their_shards(shards: Path, tmp_path: Path) -> None:
    """The same readers, which fetch what is not here."""
    dataset = StreamingDataset(remote=shards, local=tmp_path / "cache", split="train", batch_size=1)
    assert dataset.cache_usage == 0
    first, last = dataset.shards[0], dataset.shards[-1]
    assert isinstance(first, _module("base.format").Reader)
    assert last[-1]["id"] == 49
    assert dataset.cache_usage == last.get_raw_size()
    assert (first.dirname, first.split) == (str(tmp_path / "cache"), "train")
    assert [len(shard) for shard in dataset.shards] == dataset.samples_per_shard.tolist()
    assert [sample["id"] for shard in dataset.shards for sample in shard] == list(range(50))
    shard, row = dataset.spanner[20]
    assert dataset.shards[shard][row]["id"] == 20
    assert [shard.samples for shard in dataset.shards[1:3]] == dataset.samples_per_shard[
        1:3
    ].tolist()


def test_writers_have_the_attributes_of_the_reference(tmp_path: Path) -> None:
    """As they are used, not as they were given."""
    columns = {"t": "str", "id": "int"}
    with MDSWriter(
        out=(tmp_path / "local", "memory://mosaic-writer"),
        columns=columns,
        keep_local=True,
        compression="zstd:7",
        hashes=["xxh64", "sha1"],
        size_limit="1kb",
    ) as out:
        assert out.column_names == ["id", "t"]
        assert out.column_encodings == ["int", "str"]
        assert out.column_sizes == [8, None]
        assert (out.compression, out.hashes, out.size_limit) == ("zstd:7", ["sha1", "xxh64"], 1024)
        assert (out.local, out.keep_local) == (tmp_path / "local", True)
        assert out.remote is not None
        assert out.remote.startswith("memory://mosaic-writer")
    with MDSWriter(out=tmp_path / "plain", columns=columns) as out:
        assert (out.remote, out.keep_local, out.hashes) == (None, False, [])


# --- helpers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["br", "br:5", "bz2", "gz:3", "snappy", "zstd", "zstd:7"])
def test_bytes_are_compressed_and_expanded(algo: str) -> None:
    """Of any size, and none."""
    names = _module("base.compression")
    for data in (b"", b"abc", bytes(3_000_000), np.random.default_rng(0).bytes(70_000)):
        assert names.decompress(algo, names.compress(algo, data)) == data
    assert names.is_compression(algo)
    assert algo in names.get_compressions()
    assert names.get_compression_extension(algo) == algo.split(":", maxsplit=1)[0]


def test_other_programs_compression_is_expanded() -> None:
    """None leaves bytes as they are; damage is an error."""
    names = _module("base.compression")
    assert names.decompress(None, b"abc") == names.compress(None, b"abc") == b"abc"
    assert names.decompress("gz", gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    assert names.decompress("bz2", bz2.compress(b"a" * 99)) == b"a" * 99
    assert names.is_compression(None)
    assert not names.is_compression("zip")
    for algo in ("gz", "bz2", "br", "zstd", "snappy"):
        with pytest.raises(streaming_core.StreamingError):
            names.decompress(algo, names.compress(algo, b"abc" * 50)[:-3])


def test_hashes_are_found_by_name() -> None:
    """As in hashlib."""
    names = _module("base.hashing")
    assert names.get_hash("sha1", b"abc") == hashlib.sha1(b"abc").hexdigest()  # noqa: S324
    assert names.is_hash("xxh64")
    assert not names.is_hash("crc")
    assert len(names.get_hashes()) == 17


def test_the_world_is_told_under_the_names_of_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six ranks on two nodes; loading processes are counted through all of them."""
    for name, value in (("RANK", "4"), ("WORLD_SIZE", "6"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    world = _module("base.world").World.detect()
    assert (world.rank, world.num_ranks, world.rank_of_node, world.ranks_per_node) == (4, 6, 1, 3)
    assert (world.node, world.num_nodes, world.is_multinode) == (1, 2, True)
    assert (world.worker, world.num_workers, world.worker_of_node, world.workers_per_node) == (
        *(4, 6, 1, 3),
    )
    assert (world.worker_of_rank, world.workers_per_rank) == (0, 1)
    assert (world.is_leader, world.is_local_leader) == (False, False)
    names = _module("base.distributed")
    found = [names.get_rank(), names.get_world_size(), names.get_local_rank()]
    assert [*found, names.get_local_world_size()] == [4, 6, 1, 3]
    names.barrier()  # without torch.distributed there is nobody to wait for


@pytest.mark.process
def test_ranks_wait_for_each_other(tmp_path: Path) -> None:
    """`maybe_init_dist` begins what `barrier` needs, once."""
    script = tmp_path / "job.py"
    script.write_text("""
import pathlib, sys, time
from streaming_core.mosaic.base.distributed import barrier, get_rank, maybe_init_dist
import torch.distributed as dist
assert maybe_init_dist() and not maybe_init_dist()
if get_rank() == 0:
    time.sleep(1)
    pathlib.Path(sys.argv[1], "there").touch()
barrier()
assert pathlib.Path(sys.argv[1], "there").exists()
dist.destroy_process_group()
""")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script), str(tmp_path)], check=False, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()


def test_arrays_are_indexed_as_datasets_are() -> None:
    """By numbers, slices, and lists, nested ones too."""

    class Squares(_module("base.array").Array):  # type: ignore[misc]
        size = 5

        def get_item(self, idx: int) -> int:
            return idx * idx

    squares = Squares()
    assert len(squares) == 5
    assert [squares[3], squares[-1], squares[1:3], squares[[[0], [4]]]] == [
        9,
        16,
        [1, 4],
        [[0], [16]],
    ]
    assert squares[np.array([1, 2])] == [1, 4]
    with pytest.raises(IndexError):
        _ = squares[5]


def test_spanners_find_shards() -> None:
    """Those without samples are passed over."""
    spanner = _module("base.spanner").Spanner(np.array([3, 0, 2]), span_size=4)
    assert [spanner[at] for at in range(5)] == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    for at in (-1, 5):
        with pytest.raises(IndexError):
            _ = spanner[at]


def test_texts_of_sizes_and_lists_are_read() -> None:
    """As the arguments of converters."""
    util = _module("base.util")
    assert [util.bytes_to_int("1kb"), util.bytes_to_int(7)] == [1024, 7]
    assert [util.number_abbrev_to_int("1.5k"), util.number_abbrev_to_int(7)] == [1500, 7]
    assert [util.get_list_arg("a,b"), util.get_list_arg("")] == [["a", "b"], []]
    assert "pip install 'streaming-core[s3]'" in util.get_import_exception_message("boto3", "s3")
    util.clean_stale_shared_memory()


def test_what_fails_is_tried_again() -> None:
    """As often as it is allowed to, after something is cleaned up."""
    retry = _module("base.util").retry
    cleaned: list[int] = []

    def fails(times: int) -> Any:
        left: Iterator[None] = iter([None] * times)

        @retry((ValueError, KeyError), lambda: cleaned.append(1), 3, 0.001, max_jitter=0.001)  # type: ignore[untyped-decorator]
        def job(result: int, *, more: int) -> int:
            for _ in left:
                raise ValueError("again")
            return result + more

        return job

    assert fails(2)(1, more=2) == 3
    assert len(cleaned) == 2
    with pytest.raises(ValueError, match="again"):
        fails(3)(1, more=2)


def test_a_file_is_waited_for(tmp_path: Path) -> None:
    """Until it is there, or time is up."""
    wait = _module("base.util").wait_for_file_to_exist
    file = tmp_path / "late"
    threading.Timer(0.2, file.touch).start()
    wait(str(file), 0.01, 60, "the file is late")
    with pytest.raises(RuntimeError, match="no such luck"):
        wait(str(tmp_path / "never"), 0.01, 0.05, "no such luck")


def test_parts_are_merged(tmp_path: Path) -> None:
    """Under the name of before, too."""
    for part in range(2):
        with MDSWriter(out=tmp_path / str(part), columns={"id": "int"}) as out:
            out.write({"id": part})
    _module("base.util")._merge_index_from_root(str(tmp_path))
    assert [sample["id"] for sample in LocalDataset(tmp_path)] == [0, 1]
