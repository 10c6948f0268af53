"""From where a table says that its files are to one folder and names below it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core._names import name_problem
from streaming_core._store import public_url
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Rooted", "rooted"]

_SAME: Final = {"s3a": "s3", "s3n": "s3", "file": ""}
"""Schemes that are other words for one; files of this machine have none."""


class Rooted(NamedTuple):
    """Where some files lie."""

    root: str
    """A folder that has all of them, as `open_store` takes it."""
    keys: list[str]
    """Each one's name below it, as the store has it: nothing in it is encoded."""


def rooted(locations: Sequence[str], table: str) -> Rooted:
    """Return where the files at `locations` lie: below `table`, else below what they share.

    A location is text as it is: a `%20` in it is three letters of the name.

    Raises:
        SchemaError: They lie in several places, or one has a name that no store takes.

    Example:
        >>> rooted(["s3a://b/t/data/x", "s3://b/t/y"], "s3://b/t")
        Rooted(root='s3://b/t', keys=['data/x', 'y'])
        >>> rooted(["file:///a/b/x", "/a/c/y"], "/t")
        Rooted(root='/a', keys=['b/x', 'c/y'])
    """
    base, folder = _split(table)
    places = [_split(location) for location in locations]
    bases = {one for one, _ in places} or {base}
    if len(bases) > 1:
        first, second = sorted(bases)[:2]
        msg = (
            f"the files of {public_url(table)} lie in several places, {first or 'this machine'} "
            f"and {second} among them, which one stream cannot read; rewrite the table in one place"
        )
        raise SchemaError(msg)
    parts = [path.split("/") for _, path in places]
    top = folder.split("/")
    if bases != {base} or any(one[: len(top)] != top for one in parts):
        base, top = next(iter(bases)), _shared(parts)
    keys = ["/".join(one[len(top) :]) for one in parts]
    for key, location in zip(keys, locations, strict=True):
        problem = name_problem(key)
        if problem is not None:
            msg = f"the table's file {public_url(location)!r} has a name that is refused: {problem}"
            raise SchemaError(msg)
    return Rooted(base + "/".join(top) if base else "/" + "/".join(top), keys)


def _split(location: str) -> tuple[str, str]:
    """Return scheme and host, and the path below, without slashes around it."""
    scheme, mark, rest = location.partition("://")
    if not mark:
        # `file:/x` is a form of `file:///x` that Hadoop writes.
        return "", location.removeprefix("file:").strip("/")
    host, _, path = rest.partition("/")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    return (f"{scheme}://{host}/" if scheme else ""), path.strip("/")


def _shared(parts: list[list[str]]) -> list[str]:
    """Return the folders that all paths begin with."""
    low, high = min(parts), max(parts)
    count = 0
    while count < min(len(low), len(high)) - 1 and low[count] == high[count]:
        count += 1
    return low[:count]
