"""What is known of data that nobody converted: files, units of them, and how both are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from streaming_core._store import version_of
from streaming_core._virtual._versions import may_be_same
from streaming_core.errors import (
    ObjectNotFoundError,
    RangeError,
    SourceChangedError,
    SourceFormatError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming_core._store import Parts, Store

__all__ = ["Ask", "Bounds", "Kind", "Piece", "Scan", "SourceFile", "SourceReader", "Unit"]

_STEP_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the source, as its listing showed it."""

    key: str
    """Its name below the store that was listed."""
    size: int
    """Bytes."""
    etag: str
    """Its version; empty if the store does not say."""
    constants: tuple[tuple[str, str | None], ...] = ()
    """Columns that its place gives all its rows, as `year=2024` in a folder's name does."""


class Unit(NamedTuple):
    """Rows of one file that are fetched and decoded together: a virtual shard.

    `number` and `part` mean what the kind wants them to: a row group, a range of bytes.
    """

    samples: int
    """Rows, exactly, before any filter."""
    nbytes: int
    """About how many bytes they take once they are decoded."""
    number: int
    """Which part of the file this is, such as a row group, or the first byte."""
    part: int = 0
    """More of that, such as the first row within the group, or the byte after the last."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What looking at one file brought."""

    schema: Any
    """A `pyarrow.Schema` of its columns."""
    units: tuple[Unit, ...]
    """Its rows, in order, each in one unit."""
    meta: bytes = b""
    """What decoding needs besides the bytes of a unit, such as a footer."""


class Piece(NamedTuple):
    """Bytes of a file and where they begin."""

    start: int
    data: bytes


class Ask(Protocol):
    """Makes requests, and may make one again that failed with a `StoreError`."""

    def __call__(self, request: Callable[[], list[Piece]], /) -> list[Piece]:
        """Return what a request returns; raises what it raises."""
        ...


class Bounds(NamedTuple):
    """What a format notes of the values of one column in one unit."""

    least: Any = None
    """A `pyarrow.Scalar` that no value is less than, NaN aside; None if that is not known."""
    most: Any = None
    """Likewise one that no value is more than."""
    has_null: bool = True
    """Whether a value may be missing."""
    has_value: bool = True
    """Whether a value may be there."""


class SourceReader:
    """Reads bytes of one file, all of the version that was listed."""

    __slots__ = ("_ask", "_beside", "_is_of_table", "_store", "file")

    def __init__(
        self,
        store: Store,
        file: SourceFile,
        beside: dict[str, bytes] | None = None,
        ask: Ask | None = None,
        *,
        is_of_table: bool = False,
    ) -> None:
        """`beside` keeps what `beside` read, for the readers of other files of the same store.

        `ask` runs the requests of `ranges`; without it each is made once. `is_of_table` says that
        the file is known from the metadata of a table, and not from a listing.
        """
        self._is_of_table = is_of_table
        self._store = store
        self._ask = ask
        self._beside = {} if beside is None else beside
        self.file = file
        """What is read."""

    @property
    def where(self) -> str:
        """The file's name for messages, without secrets."""
        return f"{self._store.url}/{self.file.key}"

    def ranges(self, wanted: Sequence[tuple[int, int]]) -> list[Piece]:
        """Return the bytes from each start to its stop, near ones read together.

        Raises:
            SourceChangedError: The file is gone, or another than when it was listed.
            StoreError: The store failed.
        """
        if not wanted:
            return []
        return self._got(wanted) if self._ask is None else self._ask(lambda: self._got(wanted))

    def _got(self, wanted: Sequence[tuple[int, int]]) -> list[Piece]:
        try:
            parts: Parts = self._store.get_ranges(self.file.key, wanted)
        except ObjectNotFoundError as error:
            msg = "it is gone"
            raise self._changed(msg) from error
        except RangeError as error:
            msg = f"it is shorter than {self.file.size} bytes"
            raise self._changed(msg) from error
        self.check(parts.etag)
        return [Piece(start, data) for (start, _), data in zip(wanted, parts, strict=True)]

    def tail(self, count: int) -> Piece:
        """Return the last `count` bytes, or all if there are fewer."""
        start = max(0, self.file.size - count)
        return self.ranges([(start, self.file.size)])[0] if self.file.size else Piece(0, b"")

    def whole(self) -> bytes:
        """Return all bytes of the file."""
        return self.ranges([(0, self.file.size)])[0].data if self.file.size else b""

    def steps(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, few at a time, each part a request of its own.

        Unlike a stream, which breaks if nothing is taken for long; raises as `ranges`.
        """
        for at in range(start, stop, _STEP_BYTES):
            yield self.ranges([(at, min(stop, at + _STEP_BYTES))])[0].data

    def beside(self, name: str, most: int) -> bytes:
        """Return a file of at most `most` bytes that lies in the same folder.

        Raises:
            SourceFormatError: There is none.
            StoreError: The store failed, or it is larger.
        """
        folder, mark, _ = self.file.key.rpartition("/")
        key = f"{folder}{mark}{name}"
        if key not in self._beside:
            try:
                self._beside[key] = self._store.get(key, max_bytes=most)
            except ObjectNotFoundError as error:
                msg = f"{self.where}: {name!r}, which says what is in it, does not lie beside it"
                raise SourceFormatError(msg) from error
        return self._beside[key]

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes in order; a piece is valid until the next. Raises as `ranges`."""
        try:
            pieces = self._store.stream(self.file.key)
            count = 0
            with closing(pieces):
                for piece in pieces:
                    if not count:
                        self.check(version_of(pieces))
                    count += len(piece)
                    yield piece
        except ObjectNotFoundError as error:
            msg = "it is gone"
            raise self._changed(msg) from error
        if count != self.file.size:
            msg = f"it has {count} bytes, indexed were {self.file.size}"
            raise self._changed(msg)

    def check(self, etag: str) -> None:
        """Raise `SourceChangedError` if a version cannot be that of the listing."""
        if not may_be_same(self.file.etag, etag, self.file.size):
            msg = f"its version is {etag}, indexed was {self.file.etag}"
            raise self._changed(msg)

    def check_size(self) -> None:
        """Raise `SourceChangedError` if the file has another size now, or is gone."""
        try:
            size = self._store.head(self.file.key).size
        except ObjectNotFoundError as error:
            msg = "it is gone"
            raise self._changed(msg) from error
        if size != self.file.size:
            msg = f"it has {size} bytes, expected {self.file.size}"
            raise self._changed(msg)

    def _changed(self, how: str) -> SourceChangedError:
        if self._is_of_table:
            return SourceChangedError(
                f"{self.where}: the file is not as the table's metadata say ({how}); something "
                "other than the table removed or replaced it, or its snapshot expired. Restore "
                "the file, or choose a version of the table whose files are there"
            )
        return SourceChangedError(
            f"{self.where}: the file changed after it was indexed ({how}); do not change data that "
            "is being read. Construct the data set anew; where an index lies beside the data, or "
            f"is given, write it again with `streaming-core index {self._store.url}` (and the "
            "pattern, if you read one)"
        )


class Kind(ABC):
    """One file format: how it is taken apart into units, and how a unit becomes a table.

    Has no state but its options, which are plain values; pickles, and any number of threads use it.
    """

    name: ClassVar[str]
    """What users call it, as in `Stream(format=...)`."""
    suffixes: ClassVar[tuple[str, ...]]
    """Ends of file names that tell it, in small letters."""
    is_told_by_name: ClassVar[bool] = True
    """Whether these mean this format; if not, as other files have them too, it has to be named."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of the options that `__init__` takes."""
    is_of_table: ClassVar[bool] = False
    """Whether a table's metadata say which files there are."""

    @abstractmethod
    def scan(self, reader: SourceReader) -> Scan:
        """Look at one file; reads as little of it as an exact count takes.

        Raises:
            SourceFormatError: It is no file of this kind; says where, and what is wrong.
        """

    @abstractmethod
    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return which bytes hold `columns` (all if None) of a unit."""

    @abstractmethod
    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a type of an optional dependency
        """Return a `pyarrow.Table` of exactly the unit's rows from the bytes of its `ranges`.

        It has the file's own columns and types, in the file's order, those of `columns` or more.

        Raises:
            SourceFormatError: The bytes are broken; says where.
        """

    def kin(
        self, file: SourceFile, meta: Callable[[], bytes], units: Sequence[Unit], at: int
    ) -> range:
        """Return which of a file's units, that of `at` among them, are made of the same bytes.

        So they are best made in one go, by `tables`. By default none is but that one. `meta`
        returns what the scan found.
        """
        del file, meta, units
        return range(at, at + 1)

    def tables(
        self,
        reader: SourceReader,
        meta: bytes,
        units: Sequence[Unit],
        columns: Sequence[str] | None,
    ) -> Iterator[Any]:
        """Yield what `decode` returns for each of some units, which are kin and in order.

        Bytes that they share are fetched and decoded once. Raises as `ranges` and `decode`.
        """
        for unit in units:
            pieces = reader.ranges(self.ranges(reader.file, meta, unit, columns))
            yield self.decode(reader.file, meta, unit, pieces, columns)

    def bounds(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str]
    ) -> Mapping[str, Bounds]:
        """Return what is known of some columns of a unit before it is read; nothing by default.

        Columns of which nothing is known may be left out, those that the file lacks must be.
        """
        del file, meta, unit, columns
        return _NOTHING


_NOTHING: Final[Mapping[str, Bounds]] = MappingProxyType({})
