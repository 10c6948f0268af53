"""From the bytes of an index document to a table, or to everything that is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from streaming_core._index._build import TableBuilder
from streaming_core._index._json import (
    BROKEN_JSON,
    count_quotes,
    decode_value,
    note_syntax,
    type_name,
)
from streaming_core._index._judge import judge_version
from streaming_core._index._problems import Problems, member
from streaming_core._units import format_bytes

if TYPE_CHECKING:
    from streaming_core._index._table import ShardTable

__all__ = ["MAX_INDEX_BYTES", "parse_index"]

MAX_INDEX_BYTES: Final = 1 << 30
"""The largest document that is read unless the caller says otherwise."""


def parse_index(data: bytes, where: str, *, max_bytes: int = MAX_INDEX_BYTES) -> ShardTable:
    """Return the table of the index document `data`, or raise with all that is wrong with it.

    Nothing in the document is trusted, and no other error is raised whatever its bytes are. Keys
    that are unknown are kept, not used. `where` names the document in the error. Takes about 4 µs
    and, beside `data`, some 200 bytes a shard; blocks, touches no files.

    Raises:
        IndexInvalidError: `problems` has each problem with its JSON path (the first 1000).

    Example:
        >>> parse_index(b'{"shards": [], "version": 2}', "index.json").num_shards
        0
    """
    return _parse(data, where, max_bytes=max_bytes, fast=True)


def _parse(data: bytes, where: str, *, max_bytes: int, fast: bool) -> ShardTable:
    problems = Problems()
    if len(data) > max_bytes:
        text = f"required at most {format_bytes(max_bytes)}, came {format_bytes(len(data))}"
        problems.add("$", text, "size")
        problems.check(where)
    top = _members(data, problems)
    problems.check(where)
    for key in ("shards", "version"):
        if key not in top:
            problems.add(f"$.{key}", "required key is missing", "missing")
    extras: dict[str, Any] = {}
    quotes = 0
    for key, spelt in top.items():
        if key == "shards":
            continue
        raw = bytes(spelt)
        quotes += count_quotes(raw)
        sound, value = decode_value(raw, member("$", key), problems)
        if sound and key == "version":
            judge_version(value, "$.version", problems)
        elif sound:
            extras[key] = value
    builder = TableBuilder(problems)
    items = _items(top["shards"], problems) if "shards" in top else []
    builder.add(items or [], fast=fast)
    # All quotes lie in a member or round its key, unless a member was replaced by its double.
    if items is not None and builder.quotes + quotes + 2 * len(top) != count_quotes(data):
        problems.add("$", "a key of the document itself occurs twice", "duplicate")
    problems.check(where)
    return builder.build(extras)


def _members(data: bytes, problems: Problems) -> dict[str, msgspec.Raw]:
    """Return the members of the document, each as it is spelt."""
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        wanted = "required an object with the keys 'shards' and 'version'"
        problems.add("$", f"{wanted}, came {type_name(data)}", "type")
    except BROKEN_JSON as error:
        note_syntax(data, error, "$", problems)
    return {}


def _items(raw: msgspec.Raw, problems: Problems) -> list[msgspec.Raw] | None:
    """Return the entries, each as it is spelt; None if they are no list."""
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        problems.add("$.shards", f"required a list, came {type_name(bytes(raw))}", "type")
    except BROKEN_JSON as error:
        note_syntax(bytes(raw), error, "$.shards", problems)
    return None
