"""Reading JSON from strangers: what is wrong with it, how deep it is, which keys come twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from streaming_core._index._problems import Problems, is_array, member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["BROKEN_JSON", "MAX_DEPTH", "count_quotes", "decode_value", "note_syntax", "type_name"]

MAX_DEPTH: Final = 64
"""How many objects and lists may lie in each other; an entry needs four."""

BROKEN_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for documents that are none."""

_TYPES = {"{": "an object", "[": "a list", '"': "a text", "n": "null", "t": "a boolean"}
_HINTS: Final = (
    (b"<", "this looks like HTML or XML, so an error or login page was fetched in its place"),
    (b"\xef\xbb\xbf", "it starts with a byte order mark; save it as plain UTF-8"),
    (b"\xff\xfe", "it is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16; save it as UTF-8"),
    (b"\x1f\x8b", "it is gzip-compressed; decompress it"),
    (b"\x28\xb5\x2f\xfd", "it is zstd-compressed; decompress it"),
    (b"version https://git-lfs", "it is a Git LFS pointer; run 'git lfs pull'"),
)
_HEAD = 64


def note_syntax(data: bytes, error: Exception | None, path: str, problems: Problems) -> None:
    """Note that `data`, found at `path`, is no JSON, with a guess at what it is instead."""
    head = bytes(data[:_HEAD]).lstrip()
    hint = next((text for magic, text in _HINTS if head.startswith(magic)), None)
    if isinstance(error, RecursionError):
        text = f"required at most {MAX_DEPTH} objects and lists in each other, came more"
        problems.add(path, text, "depth")
        return
    if not head:
        text = "the document is empty; the upload or download may have failed"
    elif isinstance(error, UnicodeDecodeError):
        text = f"no valid UTF-8 ({error.reason})"
    else:
        text = f"no valid JSON ({error})"
        if "truncated" in str(error):
            hint = hint or "it is cut off, so the upload or download did not finish"
    problems.add(path, f"{text}; {hint}" if hint else text, "json")


def decode_value(raw: bytes, path: str, problems: Problems) -> tuple[bool, Any]:
    """Return whether `raw` is sound JSON, and its value; note broken text, depth, double keys."""
    try:
        value: Any = msgspec.json.decode(raw)
    except BROKEN_JSON as error:
        note_syntax(raw, error, path, problems)
        return False, None
    if _is_deep(value):
        note_syntax(raw, RecursionError(), path, problems)
        return False, None
    for at in _double_keys(raw, path):
        problems.add(at, "the key occurs twice", "duplicate")
    return True, value


def count_quotes(text: bytes) -> int:
    r"""Return how many quotes open or close a text in valid JSON; those after a `\` do not count.

    Example:
        >>> count_quotes(b'{"a": "b"}'), count_quotes(rb'["\"", "\\"]')
        (4, 4)
    """
    if b'\\"' in text:  # pairs of backslashes go first, or the last one would seem to quote
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return text.count(b'"')


def type_name(raw: bytes) -> str:
    """Return what kind of JSON value `raw` is, by its first character.

    Example:
        >>> type_name(b"[1]"), type_name(b" 3")
        ('a list', 'a number')
    """
    first = bytes(raw[:_HEAD]).lstrip()[:1].decode("ascii", "replace").replace("f", "t")
    return _TYPES.get(first, "a number")


def _is_deep(value: object) -> bool:
    """Say whether `value` is deeper than allowed; by levels, so that its depth cannot hurt."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in cast("Iterable[Any]", item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


class _Object(dict[str, Any]):
    """An object that remembers which of its keys came more than once."""

    doubles: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        found.doubles = tuple(key for key, count in counts.items() if count > 1)
    return found


# Numbers do not matter here, and some that msgspec reads are too long for int().
_PAIRS = json.JSONDecoder(object_pairs_hook=_object, parse_int=len, parse_float=len)


def _double_keys(raw: bytes, path: str) -> Iterator[str]:
    stack: list[tuple[str, Any]] = [(path, _PAIRS.decode(bytes(raw).decode()))]
    while stack:
        at, value = stack.pop()
        if isinstance(value, _Object):
            yield from (member(at, key) for key in value.doubles)
            stack.extend((member(at, key), inner) for key, inner in value.items())
        elif is_array(value):
            stack.extend((f"{at}[{i}]", inner) for i, inner in enumerate(value))
