"""One sample after another into records: the encoding is compiled once per set of columns."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn, Protocol, cast

import numpy as np

from streaming_core._format._mds import (
    Encoding,
    Int,
    MDSColumns,
    came,
    encode_value,
    is_scalar,
)
from streaming_core.errors import MissingColumnError, SampleError
from streaming_writer._blocks import Block, Bytes, PartsBlock

__all__ = [
    "ENCODE_ERRORS",
    "Rows",
    "Sample",
    "compile_rows",
    "packs_exactly",
    "record_of",
    "refusal",
    "struct_code",
]

Sample = Mapping[str, Any]

ENCODE_ERRORS = (
    TypeError,
    ValueError,
    OverflowError,
    KeyError,
    AttributeError,
    RecursionError,
    struct.error,
)
"""What encoding raises on values that do not fit."""

_BLOCK_RECORDS = 1 << 13

_INTS: frozenset[type] = frozenset(
    {int, bool, *(np.dtype(f"{sign}{size}").type for sign in "iu" for size in (1, 2, 4, 8))}
)
_FLOATS: frozenset[type] = frozenset({float, np.float16, np.float32, np.float64})


class Rows(Protocol):
    """Encodes samples as they come and gathers their records into blocks."""

    first: int
    """The number of the first sample after the last block."""

    def add(self, sample: Sample) -> bool:
        """Encode one sample; True when a block is ready. A bad sample leaves no trace."""
        ...

    def take(self) -> Block | None:
        """Return the records gathered since the last call, if any."""
        ...


def struct_code(encoding: Encoding) -> str | None:
    """Return the `struct` code that writes exactly what `encoding` does and refuses the rest.

    Only integers and float64 have one: narrower floats may not keep every bit of a NaN.
    """
    if type(encoding) is Int:
        return "q"
    if is_scalar(encoding) and (encoding.dtype.kind in "iu" or encoding.dtype == "f8"):
        return str(encoding.dtype.char).replace("l", "q").replace("L", "Q")
    return None


def _exact_types(code: str) -> frozenset[type]:
    """Return the types whose values `struct` writes for `code` as they are, or refuses."""
    return _FLOATS if code == "d" else _INTS


def packs_exactly(values: Sequence[Any], code: str) -> bool:
    """Say whether `struct` writes all values for `code` as they are, or refuses them.

    It would also take complex numbers, masked elements, and ints that are not a float.
    """
    usual = float if code == "d" else int
    if operator.countOf(map(type, values), usual) == len(values):
        return True
    return _exact_types(code).issuperset(map(type, values))


def _packer(columns: MDSColumns) -> tuple[Callable[[Sample], Any], int]:
    """Return what gives the parts of a sample's record and its size, and how many parts there are.

    The first part has the lengths of what varies, if anything does. Columns side by side that have
    a code are one part; where that is all, it is given as it is. `TypeError` says that a value
    needs its encoding.
    """
    # Compiled, as it costs a third of a loop. Names enter it as literals only.
    head = struct.Struct(f"<{len(columns.variable)}I")
    scope: dict[str, Any] = {"ints": _INTS, "floats": _FLOATS, "other": _other, "head": head.pack}
    encodings = dict(zip(columns.names, columns.encodings, strict=True))
    codes = {name: struct_code(encoding) for name, encoding in encodings.items()}
    parts: list[str] = []
    lengths: list[str] = []
    for has_code, run in groupby(columns.names, key=lambda name: codes[name] is not None):
        names = list(run)
        if has_code:
            scope[f"p{len(parts)}"] = struct.Struct(
                "<" + "".join(map(str, map(codes.get, names)))
            ).pack
            checks = [
                f"type(v{at} := sample[{name!r}]) in {'floats' if codes[name] == 'd' else 'ints'}"
                for at, name in enumerate(names)
            ]
            values = ", ".join(f"v{at}" for at in range(len(names)))
            parts.append(f"p{len(parts)}({values}) if {' and '.join(checks)} else other()")
            continue
        for name in names:
            scope[f"p{len(parts)}"] = _encoder(encodings[name])
            if encodings[name].size is None:
                lengths.append(f"len(r{len(parts)})")
            parts.append(f"p{len(parts)}(sample[{name!r}])")
    if all(codes.values()):
        return eval(f"lambda sample: {parts[0]}", scope), 1  # noqa: S307 - see above
    named = "".join(f"r{at} := {part}, " for at, part in enumerate(parts))
    sizes = [f"n{at} := {length}" for at, length in enumerate(lengths)]
    size = " + ".join([str(columns.fixed_size), *(f"n{at}" for at in range(len(sizes)))])
    results = [
        *([f"head({', '.join(sizes)})"] if sizes else []),
        *(f"r{at}" for at in range(len(parts))),
    ]
    source = f"lambda sample: ({named}([{', '.join(results)}], {size}))[-1]"
    return eval(source, scope), len(results)  # noqa: S307 - see above


def _other() -> NoReturn:
    raise TypeError


def refusal(columns: MDSColumns, sample: Any, number: int, cause: Exception) -> SampleError:  # noqa: ANN401 - any user's value
    """Return the error that says which column of `sample` does not fit, and why."""
    where = f"sample {number}"
    if not isinstance(sample, Mapping):
        msg = f"{where}: wanted a mapping of columns to values, came {came(sample)}"
        return SampleError(msg)
    for name, text, encoding in zip(columns.names, columns.texts, columns.encodings, strict=True):
        if name not in sample:
            names = ", ".join(repr(key) for key in cast("Sample", sample))
            return MissingColumnError(
                f"{where}: column {name!r} is missing; the sample has {names}"
            )
        try:
            encode_value(encoding, sample[name])
        except ENCODE_ERRORS as error:
            return SampleError(f"{where}, column {name!r} ({text}): {error}")
    return SampleError(f"{where}: {cause}")


class _AnyRows:
    """Samples of any columns."""

    def __init__(self, columns: MDSColumns, first: int, block_bytes: int) -> None:
        self._columns = columns
        self._pack, self._each = _packer(columns)
        self._parts: list[Bytes] = []
        self._lengths: list[int] = []
        self._bytes = 0
        self._block_bytes = block_bytes
        self.first = first

    def add(self, sample: Sample) -> bool:
        try:
            parts, size = self._pack(sample)
        except ENCODE_ERRORS:
            record = self._slow(sample)
            parts, size = [record, *[b""] * (self._each - 1)], len(record)
        try:
            self._parts += parts
            self._lengths.append(size)
        except BaseException:
            # An interrupt in between, caught by the caller, must not shift later records.
            del self._parts[len(self._lengths) * self._each :]
            raise
        self._bytes += size
        return self._bytes >= self._block_bytes or len(self._lengths) >= _BLOCK_RECORDS

    def _slow(self, sample: Sample) -> bytes:
        """Encode what `struct` refuses and encodings take, such as whole floats for ints."""
        try:
            return self._columns.encode(sample)
        except ENCODE_ERRORS as error:
            number = self.first + len(self._parts) // self._each
            raise refusal(self._columns, sample, number, error) from error

    def take(self) -> Block | None:
        if not self._lengths:
            return None
        lengths = np.array(self._lengths, np.int64)
        block = PartsBlock(self._parts, self._each, lengths)
        self.first += len(lengths)
        self._parts, self._lengths, self._bytes = [], [], 0
        return block


class _NumberRows(_AnyRows):
    """Samples of plain numbers, whose records are one part of one size."""

    def __init__(self, columns: MDSColumns, first: int, block_bytes: int) -> None:
        super().__init__(columns, first, block_bytes)
        self._full = min(_BLOCK_RECORDS, max(1, block_bytes // columns.fixed_size))

    def add(self, sample: Sample) -> bool:
        try:
            record = self._pack(sample)
        except ENCODE_ERRORS:
            record = self._slow(sample)
        self._parts.append(record)
        return len(self._parts) >= self._full

    def take(self) -> Block | None:
        self._lengths = [self._columns.fixed_size] * len(self._parts)
        return super().take()


def _encoder(encoding: Encoding) -> Callable[[Any], bytes]:
    """Return `encode_value` for one encoding, without the questions it need not ask."""
    encode = encoding.encode
    ours = type(encoding).__module__.startswith("streaming_core.")
    if encoding.size is not None or not ours:
        return lambda value: encode_value(encoding, value)
    return lambda value: value if type(value) is bytes else encode(value)


def record_of(columns: MDSColumns, sample: Sample) -> bytes:
    """Return the record of one sample on its own."""
    try:
        return columns.encode(sample)
    except ENCODE_ERRORS as error:
        raise refusal(columns, sample, 0, error) from error


def compile_rows(columns: MDSColumns, first: int, block_bytes: int) -> Rows:
    """Return the fastest encoder for these columns; `first` is the next sample's number."""
    kind = _NumberRows if all(map(struct_code, columns.encodings)) else _AnyRows
    return kind(columns, first, block_bytes)
