"""The cache of one dataset: where it puts files, which it trusts, and what it raises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from tests.reader.cache.making import (
    NUM_SAMPLES,
    Made,
    all_ids,
    expected,
    ids,
    make,
    names,
    ordinary_files,
)

from streaming_core.errors import (
    ChecksumError,
    ObjectNotFoundError,
    ShardFetchError,
    ShardSizeError,
    StoreError,
)
from streaming_core.testing import (
    FaultStore,
)
from streaming_reader._cache import ShardCache

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [(None, False), ("zstd:1", False), ("gz", True), (None, True)]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a plain dataset."""
    return make(tmp_path / "remote")


def _overwrite(path: Path, at: int = 40) -> None:
    """Flip bits of a file in place, as a failing disk or a careless user does."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


# --- where files lie ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_zip", [False, True])
@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_reads_all_and_lays_files_out_as_the_index_names_them(
    tmp_path: Path, compression: str | None, text: bool, keep_zip: bool
) -> None:
    """Decompressed files lie under their names, compressed ones only if they are kept."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    cache = made.cache(local, keep_zip=keep_zip)
    assert all_ids(cache, made) == list(range(NUM_SAMPLES))
    wanted = set()
    for i in range(made.num_shards):
        for role, file in made.table.shard(i).files().items():
            if keep_zip or not role.startswith("zip"):
                wanted.add(file.basename)
    assert ordinary_files(local) == wanted
    assert names(local / ".streaming/parts") == []
    assert cache.usage() == sum((local / name).stat().st_size for name in wanted)


@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_a_filled_folder_needs_no_remote(
    tmp_path: Path, compression: str | None, text: bool
) -> None:
    """What one cache has fetched another opens without asking the store."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    all_ids(made.cache(local), made)
    silent = FaultStore(made.store)
    assert all_ids(made.cache(local, remote=silent), made) == list(range(NUM_SAMPLES))
    assert silent.calls == []


@pytest.mark.parametrize("text", [False, True])
def test_without_a_remote_compressed_files_are_expanded_and_kept(
    tmp_path: Path, text: bool
) -> None:
    """A local data set is decompressed beside itself and keeps its files; no folder is left."""
    made = make(tmp_path / "remote", compression="zstd", text=text)
    before = ordinary_files(made.folder)
    for remote in (None, made.store):  # a remote that is the folder itself is none
        cache = type(made.cache(made.folder))(made.table, remote, made.folder)
        assert all_ids(cache, made) == list(range(NUM_SAMPLES))
        assert not any(cache.evict(shard) for shard in range(made.num_shards))
        assert cache.evict_coldest() is None
    assert before < ordinary_files(made.folder)
    assert not (made.folder / ".streaming").exists()


def test_without_a_remote_nothing_is_written_where_nothing_is_needed(made: Made) -> None:
    """Reading plain local shards leaves the folder as it was; what is missing is an error."""
    before = names(made.folder)
    cache = made.cache(made.folder)
    assert all_ids(cache, made) == list(range(NUM_SAMPLES))
    (made.folder / made.table.shard(3).raw.basename).unlink()
    with pytest.raises(ShardFetchError, match="no remote") as caught:
        made.cache(made.folder).open(3)
    assert isinstance(caught.value.__cause__, ObjectNotFoundError)
    assert len(names(made.folder)) == len(before) - 1


def test_a_local_compressed_file_is_used_before_the_remote(tmp_path: Path) -> None:
    """A kept compressed file is expanded again; a broken one is fetched again."""
    made = make(tmp_path / "remote", compression="zstd")
    local = tmp_path / "local"
    all_ids(made.cache(local, keep_zip=True), made)
    for i in range(made.num_shards):
        (local / made.table.shard(i).raw.basename).unlink()
    packed = made.table.shard(2).zip
    assert packed is not None
    _overwrite(local / packed.basename, 20)
    store = FaultStore(made.store)
    assert all_ids(made.cache(local, remote=store, keep_zip=True), made) == list(range(NUM_SAMPLES))
    assert [call.key for call in store.calls] == [packed.basename]


def test_names_with_folders_and_hostile_looks_work(tmp_path: Path) -> None:
    """Shards of a merged data set lie in sub-folders, whatever they are called."""
    made = make(tmp_path / "remote/part 0%2Fx")
    whole = made.table.with_prefix("part 0%2Fx")
    local = tmp_path / "local"
    store = type(made.store)(tmp_path / "remote")
    cache = type(made.cache(local))(whole, store, local)
    assert [i for k in range(made.num_shards) for i in ids(cache.open(k))] == list(
        range(NUM_SAMPLES)
    )
    assert cache.usage() == whole.total_bytes("raw")
    assert cache.evict(0)
    assert not cache.has(0)


# --- hits -----------------------------------------------------------------------------------------


def test_an_open_shard_is_the_same_object_until_it_falls_out(made: Made, tmp_path: Path) -> None:
    """A hit gives the mapped shard itself; of more than `max_open` the oldest is let go."""
    cache = made.cache(tmp_path / "local", max_open=2)
    first = cache.open(0)
    assert cache.open(0) is first
    cache.open(1)
    assert cache.open(0) is first
    cache.open(2)
    assert cache.open(0) is first
    cache.open(1)
    cache.open(2)
    assert cache.open(0) is not first
    assert ids(first) == expected(made, 0)


def test_readers_outlive_eviction(made: Made, tmp_path: Path) -> None:
    """Who has a shard reads on after its file is gone, and another open fetches it anew."""
    cache = made.cache(tmp_path / "local")
    shard = cache.open(1)
    assert cache.evict(1)
    assert not cache.evict(1)
    assert (cache.has(1), ids(shard)) == (False, expected(made, 1))
    assert ids(cache.open(1)) == expected(made, 1)


@pytest.mark.parametrize("healed", [False, True])
def test_a_mapping_of_a_file_that_was_cut_is_not_used_again(
    made: Made, tmp_path: Path, healed: bool
) -> None:
    """Reading it would end the process; also where another process has fetched the file again."""
    cache = made.cache(tmp_path / "local")
    cut = cache.open(1)
    path = tmp_path / "local" / made.table.shard(1).raw.basename
    os.truncate(path, 10)
    if healed:
        assert ids(made.cache(tmp_path / "local").open(1)) == expected(made, 1)
    assert cache.is_near(1) == healed
    found = cache.open(1)
    assert found is not cut
    assert ids(found) == expected(made, 1)
    assert cache.open(1) is found


@pytest.mark.process
def test_files_cut_between_epochs_are_fetched_again(made: Made, tmp_path: Path) -> None:
    """The next epoch has all samples; so has random access, a second later."""
    script = """
    import os, sys, time
    from streaming_core import StreamingDataset
    remote, local = sys.argv[1:]
    dataset = StreamingDataset(remote=remote, local=local, batch_size=1)
    def cut():
        for name in os.listdir(local):
            if name.startswith("shard"):
                os.truncate(os.path.join(local, name), 10)
    for epoch in range(3):
        assert len({sample["id"] for sample in dataset}) == len(dataset)
        cut()
    time.sleep(1.1)
    assert len({dataset[at]["id"] for at in range(len(dataset))}) == len(dataset)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run([*command, str(made.folder), str(tmp_path / "local")], check=True)


def test_prepare_fetches_without_keeping_anything_open(made: Made, tmp_path: Path) -> None:
    """A prepared shard is there, and opens without the store."""
    store = FaultStore(made.store)
    cache = made.cache(tmp_path / "local", remote=store)
    cache.prepare(4)
    cache.prepare(4)
    assert (cache.has(4), cache.has(5), store.count("stream")) == (True, False, 1)
    assert ids(cache.open(4)) == expected(made, 4)
    assert store.count("stream") == 1


def test_the_coldest_goes_first_and_the_held_last(made: Made, tmp_path: Path) -> None:
    """Eviction follows the last use over processes; what is mapped waits until nothing else is."""
    local = tmp_path / "local"
    cache = made.cache(local, max_open=1)
    for shard in (3, 1, 2, 0):
        cache.open(shard)
    assert [cache.evict_coldest() for _ in range(5)] == [3, 1, 2, 0, None]
    holder = made.cache(local)
    held = holder.open(5)
    cache.prepare(6)
    assert [cache.evict_coldest() for _ in range(3)] == [6, 5, None]
    assert ids(held) == expected(made, 5)


@pytest.mark.parametrize("number", [-1, 10_000])
def test_refuses_shards_that_are_none(made: Made, tmp_path: Path, number: int) -> None:
    """A number outside the index is an `IndexError` in every verb."""
    cache = made.cache(tmp_path / "local")
    for verb in (cache.open, cache.prepare, cache.has, cache.evict):
        with pytest.raises(IndexError, match=str(number)):
            verb(number)


# --- what is wrong here ---------------------------------------------------------------------------


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer"])
@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_damaged_files_are_healed(
    tmp_path: Path, compression: str | None, text: bool, damage: str, sums: bool
) -> None:
    """Whatever happens to a cached file, the next opener gets the right samples."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    all_ids(made.cache(local, sums=sums), made)
    path = local / made.table.shard(2).raw.basename
    whole = path.read_bytes()
    if damage == "flip":
        _overwrite(path)
    else:
        path.write_bytes({"cut": whole[:-9], "empty": b"", "longer": whole + b"x"}[damage])
    store = FaultStore(made.store)
    assert all_ids(made.cache(local, remote=store, sums=sums), made) == list(range(NUM_SAMPLES))
    assert path.read_bytes() == whole
    stored = {file.basename for file in made.table.shard(2).files().values()}
    assert {call.key for call in store.calls} <= stored
    assert len(names(local / ".streaming/parts")) <= 1


def test_files_that_were_there_before_are_checked_once(made: Made, tmp_path: Path) -> None:
    """A copied data set is compared with its hashes at first sight, and not again."""
    local = tmp_path / "local"
    shutil.copytree(made.folder, local)
    _overwrite(local / made.table.shard(1).raw.basename)
    store = FaultStore(made.store)
    assert all_ids(made.cache(local, remote=store), made) == list(range(NUM_SAMPLES))
    assert store.count() == 1
    ledger = (local / ".streaming/ledger").read_bytes()
    assert all_ids(made.cache(local, remote=store), made) == list(range(NUM_SAMPLES))
    assert len((local / ".streaming/ledger").read_bytes()) == len(ledger)


def test_few_wrong_files_are_kept(made: Made, tmp_path: Path) -> None:
    """Of a shard one wrong file is kept to be looked at, and of many shards some."""
    local = tmp_path / "local"
    all_ids(made.cache(local), made)
    for _ in range(2):
        for i in range(made.num_shards):
            _overwrite(local / made.table.shard(i).raw.basename)
        assert all_ids(made.cache(local), made) == list(range(NUM_SAMPLES))
    kept = names(local / ".streaming/parts")
    assert 0 < len(kept) <= 8
    assert all(name.endswith(".bad") for name in kept)


@pytest.mark.parametrize("damage", ["garbage", "cut", "gone", "other"])
def test_a_lost_ledger_is_made_anew(made: Made, tmp_path: Path, damage: str) -> None:
    """Nothing depends on the ledger: cut, overwritten or of other data, all reads stay right."""
    local = tmp_path / "local"
    cache = made.cache(local, max_open=1)
    all_ids(cache, made)
    path = local / ".streaming/ledger"
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        other = data[:24] + bytes(32) + data[56:]
        path.write_bytes(
            {"garbage": os.urandom(len(data)), "cut": data[:50], "other": other}[damage]
        )
    assert all_ids(cache, made) == list(range(NUM_SAMPLES))
    assert cache.evict_coldest() is not None
    assert len(path.read_bytes()) == len(data)


def _no_file(path: Path, kind: str) -> None:
    """Put something in the place of a file that is none."""
    path.unlink()
    if kind == "loop":
        path.symlink_to(path)
    elif kind == "dangling":
        path.symlink_to(path.parent / "nothing")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "mine").write_bytes(b"kept")


@pytest.mark.parametrize("compression", [None, "zstd:1"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "pipe", "folder"])
def test_what_is_no_file_is_fetched_again_or_told(
    tmp_path: Path, kind: str, compression: str | None
) -> None:
    """In a cache it is replaced, but for a folder: that may be somebody's."""
    made = make(tmp_path / "remote", compression=compression)
    local = tmp_path / "local"
    all_ids(made.cache(local), made)
    path = local / made.table.shard(1).raw.basename
    _no_file(path, kind)
    if kind == "folder":
        with pytest.raises(StoreError, match=r"shard\.00001.*A folder stands where the file"):
            made.cache(local).open(1)
        assert (path / "mine").read_bytes() == b"kept"
    else:
        assert ids(made.cache(local).open(1)) == expected(made, 1)
    stored = made.table.shard(1).zip or made.table.shard(1).raw
    _no_file(made.folder / stored.basename, kind)
    with pytest.raises(ShardFetchError, match=re.escape(f"{stored.basename}: not in")):
        ShardCache(made.table, None, made.folder).open(1)


def test_without_a_remote_wrong_files_are_errors(tmp_path: Path) -> None:
    """What cannot be fetched again is raised, and stays where it is."""
    made = make(tmp_path / "remote", hashes=["sha1"])
    path = made.folder / made.table.shard(1).raw.basename
    whole = path.read_bytes()
    _overwrite(path, len(whole) - 3)
    local = type(made.cache(made.folder))
    with pytest.raises(ChecksumError, match="sha1"):
        made.cache(made.folder, sums=False, validate_hash="sha1").open(1)
    path.write_bytes(whole[:-1])
    with pytest.raises(ShardSizeError, match=str(len(whole))):
        local(made.table, None, made.folder).open(1)
    assert path.exists()
