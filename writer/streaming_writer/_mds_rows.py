"""One sample after another into records: the encoding is compiled once per set of columns."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

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


def _packer(names: Sequence[str], codes: str) -> Callable[[Sample], bytes | None]:
    """Return a function from a sample to its record, or None where a value needs its encoding."""
    # Compiled, as it costs a third of a loop. Names enter it as literals only.
    scope: dict[str, Any] = {
        "pack": struct.Struct("<" + codes).pack,
        "ints": _INTS,
        "floats": _FLOATS,
    }
    values = [f"v{i}" for i in range(len(names))]
    checks = [
        f"type({value} := sample[{name!r}]) in {'floats' if code == 'd' else 'ints'}"
        for value, name, code in zip(values, names, codes, strict=True)
    ]
    source = f"lambda sample: pack({', '.join(values)}) if {' and '.join(checks)} else None"
    packer: Callable[[Sample], bytes | None] = eval(source, scope)  # noqa: S307 - see above
    return packer


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


class _PackedRows:
    """Samples of plain numbers: one `struct` call each."""

    def __init__(self, columns: MDSColumns, codes: str, first: int, block_bytes: int) -> None:
        self._columns = columns
        self._pack = _packer(columns.names, codes)
        self._records: list[bytes] = []
        self.first = first
        self._full = min(_BLOCK_RECORDS, max(1, block_bytes // (columns.record_size or 1)))

    def add(self, sample: Sample) -> bool:
        records = self._records
        try:
            record = self._pack(sample)
        except ENCODE_ERRORS:
            record = None
        records.append(record or self._slow(sample))
        return len(records) >= self._full

    def _slow(self, sample: Sample) -> bytes:
        """Encode what `struct` refuses and encodings take, such as whole floats for ints."""
        try:
            return self._columns.encode(sample)
        except ENCODE_ERRORS as error:
            number = self.first + len(self._records)
            raise refusal(self._columns, sample, number, error) from error

    def take(self) -> Block | None:
        records, self._records = self._records, []
        self.first += len(records)
        if not records:
            return None
        lengths = np.full(len(records), self._columns.record_size, np.int64)
        return PartsBlock(records, 1, lengths)


class _MixedRows:
    """Samples of any columns: one call each, the lengths of the variable ones in front."""

    def __init__(self, columns: MDSColumns, first: int, block_bytes: int) -> None:
        self._columns = columns
        self._encoders = [
            (name, _encoder(encoding))
            for name, encoding in zip(columns.names, columns.encodings, strict=True)
        ]
        self._head = struct.Struct(f"<{len(columns.variable)}I")
        self._parts: list[Bytes] = []
        self._lengths: list[int] = []
        self._bytes = 0
        self._block_bytes = block_bytes
        self.first = first

    def add(self, sample: Sample) -> bool:
        try:
            parts = [encode(sample[name]) for name, encode in self._encoders]
            sizes = [len(part) for part in parts]
            head = self._head.pack(*[sizes[i] for i in self._columns.variable])
        except ENCODE_ERRORS as error:
            number = self.first + len(self._lengths)
            raise refusal(self._columns, sample, number, error) from error
        size = len(head) + sum(sizes)
        try:
            self._parts.append(head)
            self._parts += parts
            self._lengths.append(size)
        except BaseException:
            # An interrupt in between, caught by the caller, must not shift later records.
            del self._parts[len(self._lengths) * (1 + len(parts)) :]
            raise
        self._bytes += size
        return self._bytes >= self._block_bytes or len(self._lengths) >= _BLOCK_RECORDS

    def take(self) -> Block | None:
        if not self._lengths:
            return None
        lengths = np.array(self._lengths, np.int64)
        block = PartsBlock(self._parts, 1 + len(self._encoders), lengths)
        self.first += len(lengths)
        self._parts, self._lengths, self._bytes = [], [], 0
        return block


def _encoder(encoding: Encoding) -> Callable[[Any], bytes]:
    """Return `encode_value` for one encoding, without the questions it need not ask."""
    code = struct_code(encoding)
    if code is not None:
        types, pack = _exact_types(code), struct.Struct("<" + code).pack
        return lambda value: pack(value) if type(value) in types else encode_value(encoding, value)
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
    codes = [struct_code(encoding) for encoding in columns.encodings]
    if all(codes):
        return _PackedRows(columns, "".join(code or "" for code in codes), first, block_bytes)
    return _MixedRows(columns, first, block_bytes)
