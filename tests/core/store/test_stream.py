"""Streams of a folder: one buffer, nothing left open, and changes on the way are errors."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from streaming_core._store import LocalStore
from streaming_core.errors import ObjectNotFoundError, StoreError

_BODY = bytes(range(256)) * 12_000  # three pieces
_FDS = Path("/proc/self/fd")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return a folder with one file of three pieces."""
    (tmp_path / "a").write_bytes(_BODY)
    return LocalStore(tmp_path)


def test_pieces_share_one_buffer(store: LocalStore) -> None:
    """A piece is overwritten by the next: memory does not grow with the file."""
    with closing(store.stream("a")) as pieces:
        first = next(pieces)
        before = bytes(first[:1000])
        second = next(pieces)
        assert first.obj is second.obj
        assert before == _BODY[:1000]


@pytest.mark.parametrize("size", [0, 5, len(_BODY) - 1, len(_BODY), len(_BODY) + 1])
def test_a_file_that_changes_on_the_way_is_an_error(store: LocalStore, size: int) -> None:
    """Cut, longer or rewritten in place: no stream ends as if all were well."""
    path = store.path / "a"
    os.utime(path, ns=(1, 1))
    with closing(store.stream("a")) as pieces:
        next(pieces)
        with path.open("r+b") as file:
            file.truncate(size)
            file.write(b"x" * min(size, 9))
        with pytest.raises(StoreError, match=r"a.*(ESTALE|EIO)"):
            list(pieces)


@pytest.mark.skipif(not _FDS.exists(), reason="needs /proc")
def test_a_closed_stream_leaves_nothing_open(store: LocalStore) -> None:
    """Whether it was read, left or never begun, and after an error, no descriptor stays."""
    before = sorted(_FDS.iterdir())
    for steps in (0, 1, 9):
        with closing(store.stream("a")) as pieces:
            for _ in zip(range(steps), pieces, strict=False):
                pass
    for key, start in (("none", 0), ("a", 1 << 40)):
        with pytest.raises(StoreError):
            list(store.stream(key, start=start))
    assert sorted(_FDS.iterdir()) == before


def test_a_folder_is_no_object(store: LocalStore) -> None:
    """A folder in the place of a file is a missing object."""
    (store.path / "folder").mkdir()
    with pytest.raises(ObjectNotFoundError, match="folder"):
        list(store.stream("folder"))
