"""From entries to the bytes of an index document, as the format's first writer makes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streaming_core._index._schema import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming_core._index._table import ShardTable

__all__ = ["dump_index", "dump_table"]

_SORTED = json.JSONEncoder(sort_keys=True, allow_nan=False)
_GIVEN = json.JSONEncoder(allow_nan=False)


def dump_index(
    entries: Iterable[dict[str, Any]],
    *,
    merged: bool = False,
    extras: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the document with `entries` and, at its top, `extras`; no newline at its end.

    Keys are sorted, but not in the document of a `merged` data set: there the version comes
    first, and entries keep the order of their keys. The entries are not validated.

    Example:
        >>> dump_index([]), dump_index([], merged=True)
        (b'{"shards": [], "version": 2}', b'{"version": 2, "shards": []}')
    """
    encode = (_GIVEN if merged else _SORTED).encode
    members = {"version": encode(VERSION), "shards": f"[{', '.join(map(encode, entries))}]"}
    members |= {key: encode(value) for key, value in (extras or {}).items()}
    keys = list(members) if merged else sorted(members)
    body = ", ".join(f"{json.dumps(key)}: {members.pop(key)}" for key in keys)
    return f"{{{body}}}".encode()


def dump_table(table: ShardTable, *, merged: bool = False) -> bytes:
    """Return the document of `table`, unknown keys included; the inverse of `parse_index`.

    Example:
        >>> from streaming_core._index import parse_index
        >>> document = b'{"shards": [], "version": 2}'
        >>> dump_table(parse_index(document, "example")) == document
        True
    """
    return dump_index(table.entries(), merged=merged, extras=table.extras)
