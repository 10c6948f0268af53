"""The contract of one column's encoding, which users extend."""

from __future__ import annotations

import reprlib
from typing import Any, ClassVar, Final

import numpy as np

__all__ = ["Encoding", "came", "is_a", "reject_masked"]

_MOST_CHARS: Final = 60  # one line of a terminal, with the rest of the message
_MOST_BITS: Final = 1000  # a longer number says nothing to a reader, and Python may not print it

# Never prints the whole of a large value only to cut it off.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _MOST_CHARS


class Encoding:
    """How the values of one MDS column become bytes and back.

    Subclass it, set `size` for a fixed number of bytes (or leave None), and register the class in
    `mds_encodings` under a new name to use it in `MDSWriter(columns=...)`. Instances hold no state
    that changes, so threads may share them. `encode` raises `TypeError`, `ValueError` or
    `OverflowError` with a text that says what was wanted and what came; the writer adds column and
    sample. `decode` raises `ValueError` on bytes that are not its own; the reader adds shard,
    sample and column.

    Example:
        >>> from streaming_core import Encoding, mds_encodings
        >>> class Celsius(Encoding):
        ...     size = 2
        ...
        ...     def encode(self, obj: float) -> bytes:
        ...         return round(obj * 100).to_bytes(2, "little", signed=True)
        ...
        ...     def decode(self, data: bytes) -> float:
        ...         return int.from_bytes(data, "little", signed=True) / 100
        >>> mds_encodings["celsius"] = Celsius
        >>> Celsius().decode(Celsius().encode(-4.25))
        -4.25
        >>> del mds_encodings["celsius"]
    """

    size: int | None = None
    """Bytes of every value, or None where values differ in size."""

    unsafe: ClassVar[bool] = False
    """Whether decoding can run code that the data chose; such columns must be allowed by name."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the bytes of `obj`."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - any user's value
        """Return the value whose bytes are `data`."""
        raise NotImplementedError

    @classmethod
    def parse(cls, arguments: str) -> Encoding:
        """Return the encoding for the text after `name:`; most encodings take none."""
        msg = f"this encoding takes no arguments, but {arguments!r} came"
        raise ValueError(msg)


def is_a(obj: object, *kinds: type) -> bool:
    """Say whether `obj` is of one of `kinds`; type checkers go on to take it for what it was."""
    return isinstance(obj, kinds)


def reject_masked(array: object) -> None:
    """Raise `TypeError` if elements of an array are masked: their values would be made up."""
    if isinstance(array, np.ma.MaskedArray) and _has_masked(array):
        msg = "expected an array of values, got a masked array; fill it first, as with .filled(0)"
        raise TypeError(msg)


def _has_masked(array: Any) -> bool:  # noqa: ANN401 - a masked array of any type
    return bool(np.ma.is_masked(array))


def came(obj: object) -> str:
    """Describe a value that was not wanted, briefly: its type and the start of its repr.

    Takes any value: one too large to print, or whose repr raises, too.

    Example:
        >>> came("a" * 100)
        "str 'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
        >>> came(10**10000)
        'int of 33220 bits'
    """
    name = type(obj).__name__
    if isinstance(obj, int) and obj.bit_length() > _MOST_BITS:
        return f"{name} of {obj.bit_length()} bits"
    text = _SHORT.repr(obj[:_MOST_CHARS] if type(obj) is bytes else obj)
    if len(text) > _MOST_CHARS:
        text = text[: _MOST_CHARS - 3] + "..."
    return f"{name} {text}"
