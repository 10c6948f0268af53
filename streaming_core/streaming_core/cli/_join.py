"""Joining parts into one data set, with a look at what that would cover up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_core.cli._place import INDEX, data_store, load_table
from streaming_writer import merge_index

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["Joined", "join_parts"]


@dataclass(frozen=True, slots=True)
class Joined:
    """A merged data set; the document of `merge --json`."""

    url: str
    """Where its index is."""
    num_parts: int
    """Folders that its shards lie in."""
    num_shards: int
    """Shards of all parts."""
    num_samples: int
    """Samples of all parts."""


def join_parts(root: str, parts: Sequence[str] = ()) -> Joined:
    """Write the index at `root` that joins `parts`, folders below it; without any, all of them.

    Raises what `merge_index` raises.
    """
    store = data_store(root)
    if parts:
        merge_index([_below(root, part) for part in parts], root)
    else:
        merge_index(root)
    table = load_table(store)
    folders = {name.rpartition("/")[0] for name in table.basenames("raw")}
    return Joined(store.url, len(folders), table.num_shards, table.num_samples)


def _below(root: str, part: str) -> str:
    """Return the place of `part`, given relative to `root` or, as a shell completes it, with it."""
    lead = root.rstrip("/") + "/"
    place = part.rstrip("/") if part.startswith(lead) else lead + part.strip("/")
    return place if place.endswith(f"/{INDEX}") else f"{place}/{INDEX}"
