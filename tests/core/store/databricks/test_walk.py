"""Listing folder by folder."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from streaming_core._store._databricks._walk import Entry, walk

_NAMES = st.text("ab.-/é", min_size=1, max_size=3).map(lambda text: text.replace("/", "0"))
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)


@given(st.sets(_PATHS, max_size=12), st.text("ab.-/é0", max_size=6))
def test_walks_in_the_order_of_whole_paths(paths: set[str], prefix: str) -> None:
    """What comes are the files that start with the prefix, sorted, whatever their folders."""
    assume(not prefix.startswith("/") and "//" not in prefix)
    folders: dict[str, set[Entry]] = {}
    # A name is a file or a folder, as in a file system.
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    for path in files:
        parts = path.split("/")
        for depth in range(len(parts)):
            above, is_folder = "/".join(parts[:depth]), depth < len(parts) - 1
            folders.setdefault(above, set()).add(Entry(parts[depth], is_folder))
    asked: list[str] = []

    def folder_of(folder: str) -> set[Entry]:
        asked.append(folder)
        return folders.get(folder, set())

    found = [path for path, _ in walk(folder_of, prefix)]
    assert found == sorted(path for path in files if path.startswith(prefix))
    assert len(asked) == len(set(asked))
