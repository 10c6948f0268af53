"""From the files in an archive to samples: which belong together, and where their bytes are."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np

from streaming_core._virtual._kinds._tar_headers import BLOCK_BYTES, Member, padded
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "KEY",
    "MOST_DIGITS",
    "Grouper",
    "Table",
    "bounds_of",
    "dump_table",
    "parse_table",
    "parsed_number",
    "split_name",
]

KEY: Final = "__key__"
ColumnType: TypeAlias = Literal["binary", "text", "number"]
_MOST_COLUMNS: Final = 1000
_MOST: Final = 1 << 53
"""No size or count is more, so that sums of them stay whole."""
_NUMBER: Final = re.compile(rb"\s*[+-]?[0-9]{1,19}\s*")
MOST_DIGITS: Final = 64
"""Bytes of a file that may be a whole number, white space around it included."""


def split_name(name: str) -> tuple[str, str] | None:
    """Return a file's key and column: what is before and after the first dot after the folders.

    None for files that are no part of a sample: without such a dot, hidden ones, and those of
    tools, which lie at the top as `__x__`.

    Example:
        >>> split_name("train/0001.seg.PNG"), split_name("README"), split_name("a/.hidden")
        (('train/0001', 'seg.png'), None, None)
    """
    top = name.split("/", 1)[0]
    if top.startswith("__") and top.endswith("__"):
        return None
    begin = name.rfind("/") + 1
    dot = name.find(".", begin)
    if dot <= begin or dot == len(name) - 1:
        return None
    return name[:dot], name[dot + 1 :].lower()


def parsed_number(data: bytes) -> int | None:
    """Return the whole number that a text is, None if it is none that fits 64 bits.

    Example:
        >>> parsed_number(b" 12" + bytes([10])), parsed_number(b"1_2"), parsed_number(b"")
        (12, None, None)
    """
    if len(data) > MOST_DIGITS or _NUMBER.fullmatch(data) is None:
        return None
    number = int(data)
    return number if -(1 << 63) <= number < 1 << 63 else None


class Table(NamedTuple):
    """All samples of an archive, in columns."""

    unpacked: int
    """Bytes of the archive, if the file is a compressed one; else 0."""
    columns: dict[str, ColumnType]
    """The type of each column but the key, by its name, in order."""
    keys: tuple[bytes, NDArray[np.int64]]
    """The samples' keys, one after the other, and where each begins (and the last one ends)."""
    first: NDArray[np.int64]
    """The first member of each sample, and at the end the number of members."""
    starts: NDArray[np.int64]
    """Where each member's bytes begin."""
    sizes: NDArray[np.int64]
    """How many these are."""
    kinds: NDArray[np.int64]
    """Which of `columns` each member is."""

    def key(self, sample: int) -> bytes:
        """Return the key of one sample."""
        blob, bounds = self.keys
        return blob[int(bounds[sample]) : int(bounds[sample + 1])]


class Grouper:
    """Gathers members to samples, as they come."""

    def __init__(self, where: str, *, typed: bool) -> None:
        """`typed` tells whether some columns are more than bytes."""
        self._where = where
        self._typed = typed
        self._names: dict[str, int] = {}
        self._numbers: dict[int, bool] = {}
        self._key: str | None = None
        self._seen: set[int] = set()
        self._keys: list[bytes] = []
        self._first = array("q")
        self._members = (array("q"), array("q"), array("q"))

    def add(self, member: Member) -> int | None:
        """Take the next member; return its column, None if it is no part of a sample.

        Raises:
            SourceFormatError: The sample has that column already; or there are too many; or the
                bytes are those of another file.
        """
        parts = split_name(member.name)
        if parts is None:
            return None
        if member.link:
            msg = f"{self._where}: {member.name!r} is {member.link}"
            raise SourceFormatError(msg)
        key, name = parts
        if key != self._key:
            self._key, self._seen = key, set()
            self._keys.append(key.encode("utf-8", "backslashreplace"))
            self._first.append(len(self._members[0]))
        column = self._column(name)
        if column in self._seen:
            msg = (
                f"{self._where}: {member.name!r} is the second file {name!r} of the sample {key!r};"
                " names differ in more than capital letters, and each comes once in a sample"
            )
            raise SourceFormatError(msg)
        self._seen.add(column)
        for values, value in zip(self._members, (member.start, member.size, column), strict=True):
            values.append(value)
        return column

    def wants(self, column: int) -> bool:
        """Tell whether `see` has to know the bytes of that column, which may be numbers."""
        return self._numbers.get(column, False)

    def see(self, column: int, data: bytes) -> None:
        """Take note of the bytes of a member."""
        self._numbers[column] = self.wants(column) and parsed_number(data) is not None

    def table(self, unpacked: int) -> Table:
        """Return all that came; its columns are in order of their names."""
        order = sorted(self._names)
        place = np.zeros(len(order), np.int64)
        for at, name in enumerate(order):
            place[self._names[name]] = at
        bounds = bounds_of(np.array([len(key) for key in self._keys], np.int64))
        starts, sizes, kinds = (np.array(values, np.int64) for values in self._members)
        return Table(
            unpacked,
            {name: self._type(name) for name in order},
            (b"".join(self._keys), bounds),
            np.append(np.array(self._first, np.int64), len(starts)),
            starts,
            sizes,
            place[kinds] if len(kinds) else kinds,
        )

    def _column(self, name: str) -> int:
        known = self._names.get(name)
        if known is not None:
            return known
        if name == KEY:
            msg = (
                f"{self._where}: a file ends with .{KEY}, which is the column of the samples' keys"
            )
            raise SourceFormatError(msg)
        if len(self._names) >= _MOST_COLUMNS:
            some = ", ".join(map(repr, list(self._names)[:3]))
            msg = (
                f"{self._where}: more than {_MOST_COLUMNS} columns, such as {some}. A name is cut "
                "at its first dot, so keys must have none"
            )
            raise SourceFormatError(msg)
        column = self._names[name] = len(self._names)
        if self._typed and _last(name) in _NUMBERS:
            self._numbers[column] = True
        return column

    def _type(self, name: str) -> ColumnType:
        if not self._typed:
            return "binary"
        if _last(name) in _TEXTS:
            return "text"
        if _last(name) in _NUMBERS:
            return "number" if self._numbers[self._names[name]] else "text"
        return "binary"


_TEXTS: Final = frozenset({"txt", "text", "json"})
_NUMBERS: Final = frozenset({"cls", "cls2", "index", "inx", "id"})


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class _Document(msgspec.Struct, frozen=True, array_like=True):
    unpacked: int
    columns: list[tuple[str, ColumnType]]
    keys: bytes
    key_sizes: tuple[str, bytes]
    counts: tuple[str, bytes]
    gaps: tuple[str, bytes]
    sizes: tuple[str, bytes]
    kinds: tuple[str, bytes]


_DOCUMENT: Final = msgspec.msgpack.Decoder(_Document)


def dump_table(table: Table) -> bytes:
    """Return the table as bytes, each number as narrow as it can be."""
    ends = table.starts + _padded(table.sizes)
    before = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    return msgspec.msgpack.encode(
        _Document(
            table.unpacked,
            list(table.columns.items()),
            table.keys[0],
            _narrow(np.diff(table.keys[1])),
            _narrow(np.diff(table.first)),
            _narrow((table.starts - before) // BLOCK_BYTES),
            _narrow(table.sizes),
            _narrow(table.kinds),
        )
    )


@lru_cache(maxsize=16)
def parse_table(data: bytes, where: str) -> Table:
    """Return the table in `data`; `SourceFormatError` if it is none."""
    try:
        document = _DOCUMENT.decode(data)
        sizes, gaps = _wide(document.sizes), _wide(document.gaps)
        strides = gaps * BLOCK_BYTES + _padded(sizes)
        table = Table(
            document.unpacked,
            dict(document.columns),
            (document.keys, bounds_of(_wide(document.key_sizes))),
            bounds_of(_wide(document.counts)),
            np.cumsum(strides) - _padded(sizes),
            sizes,
            _wide(document.kinds),
        )
        fits = (
            len(sizes) == len(gaps) == len(table.kinds) == int(table.first[-1])
            and len(table.first) == len(table.keys[1])
            and int(table.keys[1][-1]) == len(document.keys)
            and len(table.columns) == len(document.columns)
            and KEY not in table.columns
            and (not len(sizes) or int(table.kinds.max()) < len(table.columns))
        )
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        msg = f"{where}: what the index says of it is broken: {error!s:.200}; index it again"
        raise SourceFormatError(msg) from error
    if not fits:
        msg = f"{where}: parts of what the index says of it do not fit each other; index it again"
        raise SourceFormatError(msg)
    return table


def _padded(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return cast("NDArray[np.int64]", padded(cast("Any", sizes)))


def bounds_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of some parts begins, of which the sizes are given, and the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _narrow(values: NDArray[np.int64]) -> tuple[str, bytes]:
    kind = np.min_scalar_type(int(values.max()) if len(values) else 0).newbyteorder("<")
    return kind.str, values.astype(kind).tobytes()


def _wide(packed: tuple[str, bytes]) -> NDArray[np.int64]:
    kind, data = packed
    if kind not in {"|u1", "<u2", "<u4", "<u8"}:
        msg = f"no numbers of type {kind[:8]!r}"
        raise ValueError(msg)
    values = np.frombuffer(data, np.dtype(kind))
    if len(values) and int(values.max()) > _MOST:
        msg = f"a number of {int(values.max())}"
        raise ValueError(msg)
    return values.astype(np.int64)
