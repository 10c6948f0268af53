"""Joining parts into one data set, with a look at what that would cover up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_core.cli._place import INDEX, data_store, find_unfinished_parts, load_table
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    OutputNotEmptyError,
    ResumeError,
)
from streaming_writer import merge_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._store import Store

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

    Raises, beside what `merge_index` raises:
        ResumeError: All were asked for, and some are not finished.
        OutputNotEmptyError: `root` has an index of shards of its own, which would be lost.
    """
    store = data_store(root)
    _refuse_own_shards(store)
    if parts:
        merge_index([_below(root, part) for part in parts], root)
    else:
        unfinished = find_unfinished_parts(store)
        if unfinished:
            shown = ", ".join(unfinished[:8])
            msg = (
                f"{store.url}: {len(unfinished)} part(s) are not finished: {shown}. "
                "Finish them with resume=True, or name the parts to merge"
            )
            raise ResumeError(msg)
        merge_index(root)
    table = load_table(store)
    folders = {name.rpartition("/")[0] for name in table.basenames("raw")}
    return Joined(store.url, len(folders), table.num_shards, table.num_samples)


def _below(root: str, part: str) -> str:
    """Return the place of `part`, given relative to `root` or, as a shell completes it, with it."""
    lead = root.rstrip("/") + "/"
    place = part.rstrip("/") if part.startswith(lead) else lead + part.strip("/")
    return place if place.endswith(f"/{INDEX}") else f"{place}/{INDEX}"


def _refuse_own_shards(store: Store) -> None:
    try:
        table = load_table(store)
    except (IndexMissingError, IndexInvalidError):
        return
    own = [name for name in table.basenames("raw") if "/" not in name]
    if own:
        msg = (
            f"{store.url}/{INDEX} belongs to {len(own)} shards of its own, such as {own[0]}, "
            "which a merge would drop; move them into a folder beside the other parts first"
        )
        raise OutputNotEmptyError(msg)
