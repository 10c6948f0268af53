"""Text that lies compressed: expanded as it comes, and from places where that can begin anew."""

from __future__ import annotations

import itertools
import lzma
from bisect import bisect_left, bisect_right
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from streaming_core._codec._families import Brotli, Bzip2, Gzip
from streaming_core._codec._zstd import Zstd
from streaming_core._codec._zstd_frames import FrameError
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from streaming_core._codec import Buffer
    from streaming_core._codec._inflate import Decoder

__all__ = [
    "Inflater",
    "Mark",
    "compression_of",
    "families",
    "family_of",
    "marks_of",
    "named",
    "span_of",
]

_INPUT_BYTES: Final = 1 << 16
_OUTPUT_BYTES: Final = 1 << 20
_SLACK_BYTES: Final = 64 << 20
"""Whatever the ratio, this much may come: small files of zeros are no attack."""
_MARK_BYTES: Final = 1 << 20
"""Marks are at least this far apart, so that files of many small members have few."""
_TWICE: Final = 20
"""Of so many bytes one may be fetched twice."""
_XZ_MEMORY: Final = 256 << 20
_ENDINGS: Final = {
    ".gz": "gz",
    ".gzip": "gz",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".xz": "xz",
    ".br": "br",
    # Named so that such files are refused, and not passed over.
    ".lz4": "",
    ".snappy": "",
    ".zip": "",
}


class Mark(NamedTuple):
    """A place at which expanding can begin."""

    packed: int
    """The byte in the file."""
    plain: int
    """The byte in the text."""


_BEGIN: Final = Mark(0, 0)
_plain: Final = attrgetter("plain")


@dataclass(frozen=True, slots=True)
class _Family:
    decoder: Callable[[int], Decoder]
    errors: tuple[type[Exception], ...]
    padded: bool = False
    """Whether zeros may follow a member."""
    many: bool = True
    """Whether members may follow each other."""


def _family(code: str) -> _Family:
    if code == "gz":
        gzip = Gzip()
        return _Family(gzip.decoder, gzip.errors(), padded=True)
    if code == "zstd":
        zstd = Zstd()
        return _Family(zstd.decoder, zstd.errors())
    if code == "bz2":
        bzip2 = Bzip2()
        return _Family(bzip2.decoder, bzip2.errors())
    if code == "br":
        brotli = Brotli()
        return _Family(brotli.decoder, brotli.errors(), many=False)
    return _Family(
        lambda _: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), (lzma.LZMAError,), padded=True
    )


def named(*endings: str) -> tuple[str, ...]:
    """Return the ends of names of a format, compressed ones included.

    Example:
        >>> named(".csv")[:3]
        ('.csv', '.csv.gz', '.csv.gzip')
    """
    return tuple(one + more for one in endings for more in ("", *_ENDINGS))


def compression_of(key: str, where: str) -> str | None:
    """Return how a file is compressed, None if it is not; `SourceFormatError` if that is unknown.

    Example:
        >>> compression_of("a/b.csv.GZ", "b"), compression_of("b.csv", "b")
        ('gz', None)
    """
    _, dot, ending = key.lower().rpartition(".")
    code = _ENDINGS.get(dot + ending)
    if code == "":
        msg = (
            f"{where}: text compressed as {ending!r} cannot be read; expand it, or compress it "
            "with gzip, zstd, bzip2 or xz"
        )
        raise SourceFormatError(msg)
    return code


class Inflater:
    """Expands a compressed file, piece by piece, in bounded memory."""

    def __init__(self, code: str, where: str, *, most_ratio: int, size: int = 0) -> None:
        """Expect a file of `size` bytes; refuse one that expands to more than `most_ratio` times.

        The ratio holds at every place of the file, as far as it was read.
        """
        self._family = _family(code)
        self._code = code
        self._where = where
        self._ratio = most_ratio
        self._limit = size * most_ratio + _SLACK_BYTES
        self.marks: list[Mark] = []
        """Where expanding can begin, as far as the file was expanded."""

    def expand(self, pieces: Iterable[Buffer], begin: Mark = _BEGIN) -> Generator[bytes]:
        """Yield what `pieces` expand to, which begin at a mark.

        Raises:
            SourceFormatError: They are broken, end early, or expand to too much.
        """
        decoder: Decoder | None = None
        read, made = begin
        members = 0
        for data in _slices(pieces):
            read += len(data)
            rest: Buffer = data
            while len(rest) or (decoder is not None and not decoder.needs_input):
                if decoder is None:
                    if members and self._family.padded:
                        rest = bytes(rest).lstrip(b"\0")
                    if not len(rest):
                        break
                    self._mark(Mark(read - len(rest), made))
                    members += 1
                    decoder = self._family.decoder(max(1, self._limit - made))
                try:
                    out = decoder.decompress(rest, _OUTPUT_BYTES)
                except self._family.errors as error:
                    text = f"is broken before byte {read}: {error!s:.200}"
                    if isinstance(error, FrameError) and ("declares" in text or "window" in text):
                        text += "; if that is right, allow more with the option max_ratio"
                    raise self._wrong(text) from error
                rest = b""
                made += len(out)
                if made - begin.plain > (read - begin.packed) * self._ratio + _SLACK_BYTES:
                    text = (
                        f"expands to more than {self._ratio} times its size; if that is right, "
                        "allow more with the option max_ratio"
                    )
                    raise self._wrong(text)
                if out:
                    yield out
                if decoder.eof:
                    rest, decoder = decoder.unused_data, None
        if decoder is not None:
            text = f"stops at byte {read}, before its end"
            raise self._wrong(text)

    def texts(
        self, pieces: Iterable[Buffer], begin: Mark, places: Sequence[tuple[int, int]]
    ) -> Generator[bytes]:
        """Yield the text from each start to its stop, in order, of what `pieces` expand to.

        They begin at a mark; nothing behind the last place is expanded, and nothing else kept.
        Raises as `expand`.
        """
        with closing(self.expand(pieces, begin)) as coming:
            first = after = begin.plain
            piece = b""
            for start, stop in places:
                parts: list[memoryview] = []
                while True:
                    parts.append(memoryview(piece)[max(0, start - first) : max(0, stop - first)])
                    if after >= stop or not (piece := next(coming, b"")):
                        break
                    first, after = after, after + len(piece)
                data = b"".join(parts)
                if len(data) != stop - start:
                    msg = (
                        f"{self._where}: it expands to {after} bytes where there were {stop}; "
                        "index it again"
                    )
                    raise SourceFormatError(msg)
                yield data

    def _mark(self, mark: Mark) -> None:
        if self.marks and not self._family.many:
            text = f"goes on after its end, at byte {mark.packed}"
            raise self._wrong(text)
        if not self.marks or mark.plain >= self.marks[-1].plain + _MARK_BYTES:
            self.marks.append(mark)

    def _wrong(self, text: str) -> SourceFormatError:
        return SourceFormatError(f"{self._where}: the {self._code} data {text}")


def span_of(marks: Sequence[Mark], size: int, start: int, stop: int) -> tuple[Mark, int]:
    """Return from which mark to which byte of the file the text from `start` to `stop` lies.

    Example:
        >>> span_of([Mark(0, 0), Mark(10, 100), Mark(20, 200)], 30, 120, 180)
        (Mark(packed=10, plain=100), 20)
    """
    first = max(0, bisect_right(marks, start, key=_plain) - 1)
    after = bisect_left(marks, stop, lo=first + 1, key=_plain)
    return marks[first], marks[after].packed if after < len(marks) else size


def families(spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return the number of the first span of each family: those that are best fetched in one go.

    Spans are in order. What one has in common with the next is fetched twice where that is no more
    than a twentieth of what lies before it, so that files of many members have many families.

    Example:
        >>> families([(0, 9), (0, 9), (9, 15), (14, 20), (14, 80), (79, 99)])
        [0, 2, 5]
    """
    found: list[int] = []
    begin = end = 0
    for at, (start, stop) in enumerate(spans):
        if not found or (end - start) * _TWICE <= end - begin:
            found.append(at)
            begin = start
        end = stop
    return found


@lru_cache(maxsize=32)
def marks_of(data: bytes) -> tuple[Mark, ...]:
    """Return marks as an index keeps them: pairs of whole numbers."""
    return tuple(itertools.starmap(Mark, np.frombuffer(data, "<i8").reshape(-1, 2).tolist()))


def family_of(marks: bytes, size: int, places: tuple[tuple[int, int], ...], at: int) -> range:
    """Return which places in a text are best expanded in one go, that of `at` among them."""
    firsts = _firsts(marks, size, places)
    nth = bisect_right(firsts, at)
    return range(firsts[nth - 1], firsts[nth] if nth < len(firsts) else len(places))


@lru_cache(maxsize=32)
def _firsts(marks: bytes, size: int, places: tuple[tuple[int, int], ...]) -> list[int]:
    known = marks_of(marks)
    spans = (span_of(known, size, start, stop) for start, stop in places)
    return families((mark.packed, end) for mark, end in spans)


def _slices(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _INPUT_BYTES):
            yield view[at : at + _INPUT_BYTES]
