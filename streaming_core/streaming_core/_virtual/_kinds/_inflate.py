"""Text that lies compressed: expanded as it comes, and from places where that can begin anew."""

from __future__ import annotations

import itertools
import lzma
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
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
    from streaming_core._virtual._model import Unit

__all__ = ["Inflater", "Mark", "compression_of", "joined_units", "named", "span_of"]

_INPUT_BYTES: Final = 1 << 16
_OUTPUT_BYTES: Final = 1 << 20
_SLACK_BYTES: Final = 64 << 20
"""Whatever the ratio, this much may come: small files of zeros are no attack."""
_MARK_BYTES: Final = 1 << 20
"""Marks are at least this far apart, so that files of many small members have few."""
_FETCHES: Final = 4
"""How many units of a compressed file may need the same bytes of it, if others can be joined."""
_JOINED_BYTES: Final = 64 << 20
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
    plain = [mark.plain for mark in marks]
    first = max(0, bisect_right(plain, start) - 1)
    after = bisect_left(plain, stop, lo=first + 1)
    return marks[first], marks[after].packed if after < len(marks) else size


def joined_units(
    units: Sequence[Unit], lines: Sequence[int], marks: Sequence[Mark]
) -> tuple[list[Unit], list[int]]:
    """Join units where many would fetch the same bytes, so that they are not fetched so often."""
    plain = [mark.plain for mark in marks]
    groups = np.searchsorted(plain, [unit.number for unit in units], side="right").tolist()
    found: list[Unit] = []
    numbers: list[int] = []
    for _, each in itertools.groupby(range(len(units)), groups.__getitem__):
        group = list(each)
        size = max(units[at].part - units[at].number for at in group)
        together = min(-(-len(group) // _FETCHES), max(1, _JOINED_BYTES // size))
        for at in range(0, len(group), together):
            some = [units[one] for one in group[at : at + together]]
            found.append(
                some[0]._replace(
                    samples=sum(unit.samples for unit in some),
                    nbytes=sum(unit.nbytes for unit in some),
                    part=some[-1].part,
                )
            )
            numbers.append(lines[group[at]])
    return found, numbers


def _slices(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _INPUT_BYTES):
            yield view[at : at + _INPUT_BYTES]
