"""Listing everything where only folders can be listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Entry", "walk"]


class Entry(NamedTuple):
    """What lies in a folder."""

    name: str
    is_folder: bool
    size: int = 0
    etag: str = ""


def walk(folder_of: Callable[[str], Iterable[Entry]], prefix: str) -> Iterator[tuple[str, Entry]]:
    """Yield paths and files below the folder that `prefix` lies in, those that start with it.

    They come in the order of their paths as whole texts; folders are asked for as they are reached.

    Example:
        >>> folders = {"": [Entry("a", True), Entry("a.b", False)], "a": [Entry("z", False)]}
        >>> [path for path, _ in walk(folders.__getitem__, "")]
        ['a.b', 'a/z']
    """
    folder, _, start = prefix.rpartition("/")
    # With its slash a folder's name sorts as the paths in there do.
    found = [(entry.name + "/" * entry.is_folder, entry) for entry in folder_of(folder)]
    for name, entry in sorted(found, key=lambda pair: pair[0]):
        if not entry.name.startswith(start):
            continue
        path = f"{folder}/{name}" if folder else name
        if entry.is_folder:
            yield from walk(folder_of, path)
        else:
            yield path, entry
