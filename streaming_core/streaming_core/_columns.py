"""The values of many samples, held by column: the form in which samples travel."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

import numpy as np

from streaming_core._foreign import Foreign
from streaming_core.errors import MissingColumnError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Column",
    "Columns",
    "Fixed",
    "Foreign",
    "Item",
    "Kind",
    "Objects",
    "Ragged",
    "iterate_rows",
    "keep_freed_memory",
]

Item: TypeAlias = Literal["int", "float", "scalar", "array"]
"""What one value of a `Fixed` column is: a Python number, a NumPy scalar, or an array."""
Kind: TypeAlias = Literal["bytes", "str", "array"]
"""What one value of a `Ragged` column is: bytes, text (UTF-8), or a one-dimensional array."""

_BYTE: Final = np.dtype(np.uint8)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Values of one type and shape, stacked.

    Example:
        >>> Fixed(np.array([1, 2]), "int").to_list()
        [1, 2]
    """

    values: NDArray[Any]
    """All values, the first axis counts samples."""
    item: Item = "scalar"
    """What a value is; all but `array` need an array of one dimension."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def python(self) -> bool:
        """Whether values are Python ints."""
        return self.item == "int"

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def to_list(self) -> list[Any]:
        """Return the values one by one; arrays are views."""
        if self.item in {"int", "float"}:
            return cast("list[Any]", self.values.tolist())
        if self.item == "array" and self.values.ndim == 1:
            return [self.values[i, ...] for i in range(len(self.values))]
        return list(self.values)

    def slice(self, start: int, stop: int) -> Fixed:
        """Return the values from `start` to `stop`, a view."""
        return Fixed(self.values[start:stop], self.item)


_LARGE_BLOCK: Final = (32 << 20) - (8 << 10)
"""Just below the largest block that the GNU C library learns from."""


@final
class Ragged:
    """Values of different length, one after the other: value `i` is from `offsets[i]` to the next.

    Offsets count bytes and need not begin at 0. Large values may still lie apart, where they were
    read; the first use of `data` puts them together. Immutable, so threads may share it.

    Example:
        >>> column = Ragged(np.frombuffer(b"abc", np.uint8), np.array([0, 1, 3]), "str")
        >>> column.to_list(), column.lengths.tolist()
        (['a', 'bc'], [1, 2])
    """

    __slots__ = ("_apart", "_lent", "_raw", "dtype", "kind", "offsets")

    def __init__(
        self,
        data: NDArray[np.uint8] | bytes | bytearray,
        offsets: NDArray[np.int64],
        kind: Kind,
        dtype: np.dtype[Any] = _BYTE,
    ) -> None:
        """Hold `data`; `dtype` is that of the elements where values are arrays."""
        self.offsets = offsets
        self.kind: Kind = kind
        self.dtype = dtype
        self._raw: NDArray[np.uint8] | bytes | bytearray | None = data
        self._apart: Sequence[memoryview] | None = None
        self._lent = False

    @classmethod
    def of_views(cls, views: Sequence[memoryview], *, lent: bool = False) -> Ragged:
        """Return a column of bytes that lie where `views` show them, and keep them alive.

        If `lent`, they are listed as these views.
        """
        column = cls(b"", _offsets([len(view) for view in views]), "bytes")
        column._apart = views
        column._raw = None
        column._lent = lent
        return column

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process with the bytes of these values only."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        return Ragged, (self.data[start:stop], self.offsets - start, self.kind, self.dtype)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Elements of each value: bytes, or those of its array."""
        sizes = np.diff(self.offsets)
        return self._counted(sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, together."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def views(self) -> Sequence[memoryview] | None:
        """The values where they lie apart, else None; writing these out saves a copy."""
        return self._apart if self._raw is None else None

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes, in one piece."""
        raw = self._raw
        if raw is None:
            raw = b"".join(self._apart or ())
            self._raw = raw
        return raw if isinstance(raw, np.ndarray) else np.frombuffer(raw, np.uint8)

    @property
    def elements(self) -> NDArray[Any]:
        """The elements of all values, in one piece; `bounds` says which belong to which."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        data = self.data[start:stop]
        return data.view(self.dtype) if self.kind == "array" else data

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Where each value begins in `elements`, and where the last one ends."""
        bounds = self.offsets - self.offsets[0]
        return self._counted(bounds)

    def _counted(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.kind != "array":
            return sizes
        return np.floor_divide(sizes, self.dtype.itemsize, dtype=np.int64)

    def to_list(self) -> list[Any]:
        """Return the values one by one; arrays are views."""
        apart = self._apart
        if apart is not None and self._lent:
            return list(apart)
        if apart is not None:
            keep_freed_memory()
            return list(map(bytes, apart))
        if self.kind == "array":
            bounds, elements = self.bounds.tolist(), self.elements
            return [elements[a:b] for a, b in itertools.pairwise(bounds)]
        data: Any = self._raw
        bounds = self.offsets.tolist()
        if self.kind == "str" and len(data) != bounds[-1] - bounds[0]:
            # A slice of many values: what is done to all bytes must not be done to those of others.
            data = memoryview(data)[bounds[0] : bounds[-1]].tobytes()
            bounds = self.bounds.tolist()
        if not isinstance(data, bytes):
            data = memoryview(data)
            if self.kind == "bytes":
                return [bytes(data[a:b]) for a, b in itertools.pairwise(bounds)]
            return [str(data[a:b], "utf-8") for a, b in itertools.pairwise(bounds)]
        if self.kind == "bytes":
            return [data[a:b] for a, b in itertools.pairwise(bounds)]
        if data.isascii():  # bytes and characters are the same, so one decoding does for all
            text = data.decode()
            return [text[a:b] for a, b in itertools.pairwise(bounds)]
        return [data[a:b].decode() for a, b in itertools.pairwise(bounds)]

    def lend(self) -> Ragged:
        """Return the column so that large values are listed as views of where they lie."""
        if self._apart is None or self._raw is not None:
            return self
        return Ragged.of_views(self._apart, lent=True)

    def in_turn(self) -> Iterable[Any]:
        """Return the values one by one, large ones made only when asked for."""
        if self._apart is None:
            return self.to_list()
        keep_freed_memory()
        return map(bytes, self._apart)

    def slice(self, start: int, stop: int) -> Ragged:
        """Return the values from `start` to `stop`, a view."""
        start, stop, _ = slice(start, stop).indices(len(self))
        if self._apart is not None:
            return Ragged.of_views(self._apart[start:stop])
        raw = self._raw
        offsets = self.offsets[start : max(start, stop) + 1]
        return Ragged(b"" if raw is None else raw, offsets, self.kind, self.dtype)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """Values of any type, as they are."""

    values: list[Any]
    """All values."""

    def __len__(self) -> int:
        return len(self.values)

    def to_list(self) -> list[Any]:
        """Return the values."""
        return self.values

    def slice(self, start: int, stop: int) -> Objects:
        """Return the values from `start` to `stop`."""
        return Objects(self.values[start:stop])


Column: TypeAlias = Fixed | Ragged | Objects | Foreign


@final
@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Many samples by column.

    Example:
        >>> columns = Columns(2, {"x": Fixed(np.array([1, 2]), "int"), "y": Objects([None, "a"])})
        >>> columns.rows()
        [{'x': 1, 'y': None}, {'x': 2, 'y': 'a'}]
    """

    length: int
    """Number of samples."""
    columns: dict[str, Column]
    """Columns of `length` values by name, in the order of a sample's keys."""
    types: Mapping[str, Any] | None = None
    """The Arrow types of columns of which more is known than their values say, as a time zone."""

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Column:
        """Return one column; `MissingColumnError` lists those there are."""
        try:
            return self.columns[name]
        except KeyError:
            names = ", ".join(map(repr, self.columns))
            msg = f"no column {name!r}; the samples have {names}"
            raise MissingColumnError(msg) from None

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers, arrays, texts and bytes; those of other objects are not known."""
        found = (c.nbytes for c in self.columns.values() if not isinstance(c, Objects))
        return sum(found)

    def slice(self, start: int, stop: int) -> Columns:
        """Return the samples from `start` to `stop`, views."""
        start, stop, _ = slice(start, stop).indices(self.length)
        parts = {name: column.slice(start, stop) for name, column in self.columns.items()}
        return Columns(max(0, stop - start), parts, self.types)

    def lend(self) -> Columns:
        """Return the samples so that large bytes are listed as views, for who copies them anyway.

        They stay valid as long as these samples are referred to.
        """
        lent = {n: c.lend() if isinstance(c, Ragged) else c for n, c in self.columns.items()}
        return Columns(self.length, lent, self.types)

    def rows(self) -> list[dict[str, Any]]:
        """Return the samples as dicts; arrays in them are views of the columns."""
        return list(iterate_rows(self))

    @classmethod
    def of_rows(cls, rows: Sequence[dict[str, Any]]) -> Columns:
        """Return the columns of samples that all have the same keys, else raise `SchemaError`."""
        if not rows:
            return cls(0, {})
        names = rows[0].keys()
        for number, row in enumerate(rows):
            if row.keys() != names:
                msg = (
                    f"sample {number} of {len(rows)} has the columns {sorted(row)}, the first has "
                    f"{sorted(names)}; only samples of the same columns can form a batch"
                )
                raise SchemaError(msg)
        return cls(len(rows), {name: Objects([row[name] for row in rows]) for name in names})


def iterate_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield the samples as dicts, several million a second where values are numbers.

    Arrays in them are views of the columns.

    Example:
        >>> list(iterate_rows(Columns(1, {"x": Objects([1.5])})))
        [{'x': 1.5}]
    """
    if not columns.columns:
        return ({} for _ in range(columns.length))
    make = _maker(tuple(columns.columns))
    lists = (
        c.in_turn() if isinstance(c, Ragged) else c.to_list() for c in columns.columns.values()
    )
    return iter(make(*lists))


@lru_cache(maxsize=256)
def _maker(names: tuple[str, ...]) -> Callable[..., Iterable[dict[str, Any]]]:
    """Return a function from one list per column to the dicts, one by one."""
    # A dict display in compiled code takes a third of the time of dict(zip(names, values)). Names
    # enter it as literals only, and these cannot hold code.
    arguments = ", ".join(f"a{i}" for i in range(len(names)))
    display = ", ".join(f"{name!r}: a{i}" for i, name in enumerate(names))
    one: Callable[..., dict[str, Any]] = eval(f"lambda {arguments}: {{{display}}}")  # noqa: S307 - see above
    return lambda *lists: map(one, *lists)


_keeping = False


def keep_freed_memory() -> None:
    """Let the C library use the memory of freed large values again, once per process.

    By default it returns to the system what was freed at the end of its heap, and values of 100 kB,
    made and dropped by the batch, then cost four times as much, all of it page faults. The GNU C
    library stops that by itself when a program frees a large block; others are not affected.
    """
    global _keeping  # noqa: PLW0603 - it concerns the process
    if not _keeping:
        _keeping = True
        np.empty(_LARGE_BLOCK, np.uint8)  # never written to, so it costs no memory


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=offsets[1:])
    return offsets
