"""Folders that are read wherever links in them lead, and what in them cannot be read."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import pytest

from streaming_core._store import LocalStore
from streaming_core.errors import StoreError, UnsafeKeyError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a file, beside another with two."""
    for name in ("in/a", "out/b", "out/deep/c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "in"


def _keys(store: LocalStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_linked_folders_are_walked_and_read_only_where_that_is_asked_for(root: Path) -> None:
    """Also by a copy of the store, and by those of folders in it."""
    (root / "linked").symlink_to(root.parent / "out")
    (root / "one").symlink_to(root.parent / "out" / "b")
    store = LocalStore(root, links=True)
    wanted = ["a", "linked/b", "linked/deep/c", "one"]
    for same in (store, pickle.loads(pickle.dumps(store))):
        assert _keys(same) == wanted
        assert same.get("linked/deep/c") == b"out/deep/c"
        assert same.head("one").size == 5
    assert _keys(store.child("linked")) == ["b", "deep/c"]
    assert _keys(store, "linked/d") == ["linked/deep/c"]
    guarded = LocalStore(root)
    assert _keys(guarded) == ["a"]
    with pytest.raises(UnsafeKeyError, match="symbolic link"):
        guarded.get("linked/b")


@pytest.mark.parametrize("target", [".", "..", "loop"])
def test_links_that_lead_round_end(root: Path, target: str) -> None:
    """Each file comes once on each way that does not lead through a folder within itself."""
    (root / "loop").symlink_to(root / target if target != ".." else root.parent)
    (root / "second").symlink_to(root)
    keys = _keys(LocalStore(root, links=True))
    assert keys.count("a") == 1
    assert len(keys) == len(set(keys)) < 10


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_links_that_cross_each_other_have_an_end(root: Path, count: int) -> None:
    """However many ways there are; of too many that is said, soon."""
    for at in range(count):
        folder = root / f"d{at}"
        folder.mkdir()
        for other in range(count):
            (folder / f"l{other}").symlink_to(root / f"d{other}")
    store = LocalStore(root, links=True)
    if count == 3:
        assert _keys(store) == ["a"]
    else:
        with pytest.raises(StoreError, match="more than 4 linked folders"):
            _keys(store)


def test_what_cannot_be_read_is_told_with_the_reason(root: Path) -> None:
    """Names that no key can be, links to nothing; `list` has what can be read alone."""
    (root / "back\\slash").touch()
    (root / "line\nfeed").touch()
    (root / "broken").symlink_to(root / "nowhere")
    (root / "round").symlink_to(root / "round")
    with open(os.fsencode(root) + b"/\xff", "wb"):  # noqa: PTH123 - not a text
        pass
    os.mkfifo(root / "pipe")
    store = LocalStore(root, links=True)
    found = {entry.key: entry.problem for entry in store.entries() if entry.info is None}
    assert {key: problem.split()[-1] for key, problem in found.items()} == {
        "back\\slash": "backslash",
        "line\nfeed": "character",
        "broken": "there",
        "round": "there",
        "\udcff": "Unicode",
    }
    assert _keys(store) == ["a"]


def test_a_file_says_where_it_truly_lies_if_folders_are_linked(root: Path) -> None:
    """So that it can be told whether it came before."""
    (root / "x").mkdir()
    (root / "x" / "f").touch()
    (root / "y").symlink_to(root / "x")
    found = {entry.key: entry.real for entry in LocalStore(root, links=True).entries()}
    assert found == {"a": "", "x/f": "", "y/f": os.path.realpath(root / "x" / "f")}
