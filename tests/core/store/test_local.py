"""The local store: the contract, links, listings and what only a folder can do."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.store.contract import MarkedContract

from streaming_core._names import name_problem
from streaming_core._store import LocalStore
from streaming_core._store._temp import is_temp, temp_name
from streaming_core.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    StoreError,
    UnsafeKeyError,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return a store in a folder that does not exist yet."""
    return LocalStore(tmp_path / "store")


@pytest.mark.essential
class TestLocalStore(MarkedContract):
    """A durable folder keeps the contract."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        """Return a store in a folder that does not exist yet."""
        return LocalStore(tmp_path / "new" / "store")


class TestFastLocalStore(MarkedContract):
    """A folder without flushes keeps the contract."""

    num_overwrites = 300

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        """Return a store that does not wait for the medium."""
        return LocalStore(tmp_path, durable=False)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- identity -------------------------------------------------------------------------------------


def test_a_store_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is made absolute at once, so that workers may have another folder."""
    monkeypatch.chdir(tmp_path)
    store = LocalStore("here")
    monkeypatch.chdir("/")
    store.put("a", [b"body"])
    assert (tmp_path / "here" / "a").read_bytes() == b"body"


def test_copies_and_children_stay_as_durable(tmp_path: Path) -> None:
    """Pickling and `child` keep the choice, and it is no part of the identity."""
    fast = LocalStore(tmp_path, durable=False)
    assert not pickle.loads(pickle.dumps(fast)).durable
    assert not fast.child("a").durable
    assert fast == LocalStore(tmp_path)
    assert repr(fast) == f"LocalStore({str(tmp_path)!r}, durable=False)"


# --- putting --------------------------------------------------------------------------------------


def test_put_makes_no_copy_of_the_body(store: LocalStore) -> None:
    """Writing 64 MiB allocates next to nothing."""
    header, body = b"header", bytearray(64 << 20)
    tracemalloc.start()
    try:
        store.put("a", [header, memoryview(body)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert store.head("a").size == len(header) + len(body)


def test_partial_writes_are_completed(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes three bytes at a time still gets all of them, in order."""

    def stingy(handle: int, views: list[memoryview]) -> int:
        return os.write(handle, b"".join(views)[:3])

    monkeypatch.setattr(os, "writev", stingy)
    store.put("a", [b"0123456789", b"ab", b"c", b"defgh"])
    assert store.get("a") == b"0123456789abcdefgh"


def test_a_system_that_takes_nothing_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of no bytes must not loop for ever."""
    monkeypatch.setattr(os, "writev", lambda *_: 0)
    with pytest.raises(StoreError, match="EIO"):
        store.put("a", [b"body"])
    assert _names(store.path) == []


def test_a_wrong_length_is_noticed(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that lost bytes on the way is not published."""
    real = os.writev

    def lossy(handle: int, views: list[memoryview]) -> int:
        written = real(handle, views)
        os.ftruncate(handle, 2)
        return written

    monkeypatch.setattr(os, "writev", lossy)
    with pytest.raises(StoreError, match="EIO") as caught:
        store.put("a", [b"body"])
    assert "wrote 4 bytes, but the file has 2" in str(caught.value.__cause__)
    assert _names(store.path) == []


def test_new_files_follow_the_umask(store: LocalStore) -> None:
    """Others may read a data set if the umask lets them."""
    before = os.umask(0o022)
    try:
        store.put("a", [b"body"])
    finally:
        os.umask(before)
    assert (store.path / "a").stat().st_mode & 0o777 == 0o644


def test_the_longest_name_fits(store: LocalStore) -> None:
    """A key that the file system takes is not too long for its temporary name."""
    key = "ä" * 127
    store.put(key, [b"body"])
    assert store.get(key) == b"body"


def test_names_of_temporary_files_are_no_keys(store: LocalStore) -> None:
    """They would be invisible in listings and swept away."""
    for key in (temp_name("a"), f"folder/{temp_name('a')}", ".lock", "folder/.lock"):
        with pytest.raises(UnsafeKeyError, match="temporary"):
            store.put(key, [b"body"])
    assert not store.exists()


def test_hostile_keys_cost_no_input_or_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused key is refused before the system is asked anything."""
    store = LocalStore(tmp_path)

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the system was asked")

    for name in ("open", "stat", "lstat", "mkdir", "unlink", "scandir"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(UnsafeKeyError):
        store.get("../a")
    with pytest.raises(UnsafeKeyError):
        store.put("../a", [b"body"])
    with pytest.raises(UnsafeKeyError):
        store.delete("../a")
    monkeypatch.undo()


def test_a_file_in_the_place_of_a_folder_is_named(store: LocalStore) -> None:
    """Putting below a file fails with the reason, and keeps the file."""
    store.put("a", [b"file"])
    with pytest.raises(StoreError, match=r"ENOTDIR.*file stands where a folder"):
        store.put("a/b", [b"body"])
    assert store.get("a") == b"file"


def test_a_folder_in_the_place_of_a_file_is_named(store: LocalStore) -> None:
    """Putting onto a folder fails, keeps it, and leaves no temporary file."""
    store.put("a/b", [b"body"])
    with pytest.raises(StoreError, match="EISDIR"):
        store.put("a", [b"file"])
    with pytest.raises(AlreadyExistsError):
        store.put("a", [b"file"], if_absent=True)
    assert _names(store.path) == ["a"]


# --- reading --------------------------------------------------------------------------------------


def test_a_pipe_in_the_place_of_a_file_does_not_hang(store: LocalStore) -> None:
    """Only regular files are objects."""
    store.put("a", [b"body"])
    os.mkfifo(store.path / "pipe")
    for read in (store.get, store.head):
        with pytest.raises(ObjectNotFoundError):
            read("pipe")
    assert [info.key for info in store.list()] == ["a"]


def test_a_file_cut_while_it_is_read_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that ends early is never silently short."""
    store.put("a", [b"0123456789"])
    real = os.pread

    def cut_first(handle: int, count: int, offset: int) -> bytes:
        os.truncate(store.path / "a", 4)
        return real(handle, count, offset)

    monkeypatch.setattr(os, "pread", cut_first)
    with pytest.raises(StoreError, match="EIO") as caught:
        store.get("a")
    assert "ends 6 bytes early" in str(caught.value.__cause__)


def test_descriptors_are_closed(store: LocalStore) -> None:
    """Neither success nor failure of any verb leaves a descriptor open."""
    store.put("a", [b"0123456789"])
    before = len(_names(Path("/dev/fd")))
    for _ in range(20):
        store.get("a")
        store.put("b", [b"body"])
        list(store.list())
        for failing in (
            lambda: store.get("a", max_bytes=1),
            lambda: store.get_ranges("a", [(0, 99)]),
            lambda: store.get("absent"),
            lambda: store.put("a/b", [b""]),
            lambda: store.put("a", [b""], if_absent=True),
        ):
            with pytest.raises(StoreError):
                failing()
    assert len(_names(Path("/dev/fd"))) == before


# --- links ----------------------------------------------------------------------------------------


def test_links_out_of_the_folder_are_refused(store: LocalStore, tmp_path: Path) -> None:
    """No verb reads, writes, lists or deletes what lies outside, by whatever link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("a", [b"body"])
    (store.path / "file").symlink_to(outside / "secret")
    (store.path / "folder").symlink_to(outside)
    (store.path / "dangling").symlink_to(outside / "absent")
    for key in ("file", "folder/secret"):
        for verb in (store.get, store.head, lambda key: store.put(key, [b"changed"])):
            with pytest.raises(UnsafeKeyError, match=r"symbolic link leads to .*outside"):
                verb(key)
    for hostile in (
        lambda: store.put("dangling", [b"new"]),
        lambda: store.put("folder/new", [b"new"]),
        lambda: store.delete("folder/secret"),
        lambda: store.child("folder"),
    ):
        with pytest.raises(UnsafeKeyError):
            hostile()
    assert [info.key for info in store.list()] == ["a"]
    assert list(store.list("folder/")) == []
    assert _names(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_deleting_a_link_keeps_its_target(store: LocalStore, tmp_path: Path) -> None:
    """The link itself lies in the folder, so it may go."""
    (tmp_path / "target").write_bytes(b"body")
    store.put("a", [b"body"])
    (store.path / "link").symlink_to(tmp_path / "target")
    store.delete("link")
    assert not (store.path / "link").is_symlink()
    assert (tmp_path / "target").exists()


def test_links_inside_the_folder_work(store: LocalStore) -> None:
    """Linked files are read and listed; linked folders are read, and loops do no harm."""
    store.put("real/a", [b"body"])
    (store.path / "link").symlink_to("real/a")
    (store.path / "again").symlink_to("real")
    (store.path / "real" / "loop").symlink_to("..")
    assert (store.get("link"), store.get("again/a")) == (b"body", b"body")
    assert [info.key for info in store.list()] == ["link", "real/a"]


def test_the_folder_itself_may_be_a_link(store: LocalStore, tmp_path: Path) -> None:
    """What counts is where the root leads, not how it is spelled."""
    store.put("a", [b"body"])
    (tmp_path / "alias").symlink_to(store.path)
    alias = LocalStore(tmp_path / "alias")
    assert alias.get("a") == b"body"
    alias.put("b", [b"body"])
    assert [info.key for info in alias.list()] == ["a", "b"]


# --- listing --------------------------------------------------------------------------------------

_PARTS = st.text("ab-./0Z_ä", min_size=1, max_size=3)


@given(keys=st.sets(st.lists(_PARTS, min_size=1, max_size=3).map("/".join), max_size=12))
def test_listing_equals_the_sorted_keys(
    keys: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any set of safe keys, `list` yields exactly them in order, and each prefix its part."""
    store = LocalStore(tmp_path_factory.mktemp("list"), durable=False)
    kept: list[str] = []
    for key in sorted(keys):
        clash = any(key.startswith(f"{other}/") for other in kept)
        if name_problem(key) is None and not clash:
            store.put(key, [b""])
            kept.append(key)
    kept.sort()
    assert [info.key for info in store.list()] == kept
    for prefix in {key[: len(key) // 2 + 1] for key in kept}:
        expected = [key for key in kept if key.startswith(prefix)]
        assert [info.key for info in store.list(prefix)] == expected


def test_listing_leaves_out_what_is_no_key(store: LocalStore) -> None:
    """Files in the making, the lock's file and names that no key can have are not listed."""
    store.put("a", [b"body"])
    for name in (temp_name("a"), ".lock", "new\nline", "back\\slash"):
        (store.path / name).write_bytes(b"")
    assert [info.key for info in store.list()] == ["a"]


def test_a_file_that_goes_during_a_listing_is_left_out(store: LocalStore) -> None:
    """Another process may delete while one lists."""
    for key in ("a", "b", "c"):
        store.put(key, [b"body"])
    listing = store.list()
    assert next(listing).key == "a"
    store.delete("b")
    assert [info.key for info in listing] == ["c"]


def test_empty_means_nothing_but_litter(store: LocalStore) -> None:
    """A missing folder and one with only temporary files are empty; any other entry counts."""
    assert (store.exists(), store.empty()) == (False, True)
    store.path.mkdir()
    (store.path / temp_name("a")).write_bytes(b"")
    assert (store.exists(), store.empty()) == (True, True)
    (store.path / "folder").mkdir()
    assert not store.empty()


@given(st.text(min_size=1).filter(lambda name: name_problem(name) is None and "/" not in name))
def test_every_name_has_a_temporary_one(name: str) -> None:
    """It is recognised, hidden, short enough, and the name itself is not mistaken for one."""
    temp = temp_name(name)
    assert is_temp(temp)
    assert temp.startswith(".")
    assert len(temp.encode()) <= 255
    assert name_problem(temp) is None


def test_remove_empty_removes_nothing_else(store: LocalStore, tmp_path: Path) -> None:
    """Only an empty folder goes; a full one, a file, a link and what is missing stay."""
    store.put("full/a", [b"body"])
    (store.path / "void").mkdir()
    (store.path / "link").symlink_to(tmp_path)
    for name in ("full", "full/a", "void", "link", "absent"):
        store.remove_empty(name)
    assert _names(store.path) == ["full", "link"]
    assert store.get("full/a") == b"body"
    with pytest.raises(UnsafeKeyError):
        store.remove_empty("../outside")
