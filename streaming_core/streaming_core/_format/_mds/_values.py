"""One value from the bytes of a shard, by the shortest way for each encoding."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from streaming_core._format._mds._arrays import ArrayEncoding
from streaming_core._format._mds._objects import Bytes, Str
from streaming_core._format._mds._scalars import Int, is_scalar

if TYPE_CHECKING:
    from streaming_core._format._mds._encoding import Encoding

__all__ = ["DECODE_ERRORS", "Reader", "fault", "reader_of"]

Reader: TypeAlias = Callable[[memoryview, int, int], Any]
"""Returns the value that lies between two places; raises one of `DECODE_ERRORS`."""

DECODE_ERRORS = (
    ValueError,  # wrong lengths, shapes, UTF-8, JSON, numbers as text
    RuntimeError,  # among them RecursionError: JSON nested deeper than Python's stack
    StopIteration,  # from next() in a user's encoding, which would end an iteration
    # Pillow's answers to broken images, and what users' encodings may raise on bytes of others.
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    Warning,  # raised where the user had warnings turned into errors
    struct.error,
    zlib.error,
)
"""What decoders raise on bytes that are not theirs; the shard's reader says where it was."""


def fault(name: str, error: Exception) -> ValueError:
    """Return the error that says which column is broken, short whatever it repeats of the data."""
    text = f"{error!s:.500}"
    if not (isinstance(error, ValueError) and text):
        # The text of a KeyError or EOFError says little or nothing on its own.
        text = f"{type(error).__name__}: {text}"
    return ValueError(f"column {name!r:.200}: {text}")


def reader_of(encoding: Encoding) -> Reader:
    """Return the quickest way to the value that `encoding.decode` gives; arrays can be written to.

    Only the encodings themselves have one: a class that a user derived may decode otherwise.
    """
    kind = type(encoding)
    if kind is Int:
        integer = struct.Struct("<q").unpack_from
        return lambda data, at, _: integer(data, at)[0]
    if kind is Bytes:
        return lambda data, at, stop: bytes(data[at:stop])
    if kind is Str:
        return lambda data, at, stop: str(data[at:stop], "utf-8")
    if is_scalar(encoding):
        dtype = encoding.dtype
        return lambda data, at, _: np.frombuffer(data, dtype, 1, at)[0]
    decode = cast("Callable[[Any], Any]", encoding.decode)
    if kind is ArrayEncoding:
        # A view of bytes could not be written to, and torch warns of each such array.
        return lambda data, at, stop: decode(bytearray(data[at:stop]))
    return lambda data, at, stop: decode(bytes(data[at:stop]))
