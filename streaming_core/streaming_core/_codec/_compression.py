"""Compression by the names that an index uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_core._codec._buffers import Buffer, byte_view, byte_views
from streaming_core._codec._families import Brotli, Bzip2, Gzip, Snappy
from streaming_core._codec._inflate import Codec, Wanted
from streaming_core._codec._zstd import Zstd
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Compression", "compressions", "parse_compression"]

_CODECS: dict[str, Codec] = {
    codec.code: codec for codec in (Brotli(), Bzip2(), Gzip(), Snappy(), Zstd())
}


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression family at one level; made by `parse_compression`.

    Immutable and picklable; any thread may use it. Work on large buffers releases the
    interpreter's lock.

    Example:
        >>> compression = parse_compression("zstd:7")
        >>> packed = compression.compress([b"hello ", b"world"])
        >>> compression.decompress(packed, 11)
        b'hello world'
    """

    text: str
    """The name as given, such as `zstd:7`; what an index holds."""
    code: str
    """The family: `br`, `bz2`, `gz`, `snappy` or `zstd`."""
    level: int
    """The level, the family's default where the name has none; 0 for `snappy`."""

    @property
    def extension(self) -> str:
        """What a compressed file's name ends with, after a dot."""
        return self.code

    def compress(self, buffers: Sequence[Buffer]) -> bytes:
        """Return all bytes of `buffers` compressed; the result does not depend on how they are cut.

        Raises `MissingExtraError` where the family's package is not installed.
        """
        return _CODECS[self.code].compress(byte_views(buffers), self.level)

    def decompress(self, data: Buffer, size: int, *, where: str = "compressed bytes") -> bytes:
        """Return the exactly `size` bytes that `data` expands to, or raise `DecompressionError`.

        Memory stays near `size` whatever the data claim or contain. Data that end early, go on
        after their end, fail their own checksum or expand to another size are refused; `where`
        names them in the error. The family counts, not the level.
        """
        return _CODECS[self.code].whole(byte_view(data), Wanted(self.code, size, where))

    def decompress_stream(
        self, chunks: Iterable[Buffer], size: int, *, where: str = "compressed bytes"
    ) -> Iterator[bytes]:
        """Yield what `chunks` expand to, piece by piece: exactly `size` bytes in all.

        A chunk is taken only when what came before was yielded, and must stay unchanged until the
        next is taken. Pieces have a few MiB at most, and only `snappy` holds the whole. What was
        yielded before a `DecompressionError` is not to be trusted.

        Example:
            >>> compression = parse_compression("gz")
            >>> packed = compression.compress([bytes(5000)])
            >>> chunks = (packed[at : at + 10] for at in range(0, len(packed), 10))
            >>> sum(len(piece) for piece in compression.decompress_stream(chunks, 5000))
            5000
        """
        return _CODECS[self.code].stream(chunks, Wanted(self.code, size, where))


def _all() -> Iterator[Compression]:
    for code, codec in _CODECS.items():
        yield Compression(code, code, codec.default)
        for level in codec.levels:
            yield Compression(f"{code}:{level}", code, level)


_BY_TEXT = {compression.text: compression for compression in _all()}


def compressions() -> list[str]:
    """Return every valid name of a compression.

    Example:
        >>> len(compressions()), compressions()[:3]
        (58, ['br', 'br:0', 'br:1'])
    """
    return list(_BY_TEXT)


def parse_compression(text: str | None) -> Compression | None:
    """Return the compression that `text` names, None for None; `SchemaError` for any other name.

    Example:
        >>> parse_compression("gz:6")
        Compression(text='gz:6', code='gz', level=6)
    """
    if text is None:
        return None
    found = _BY_TEXT.get(str(text))
    if found is None:
        forms = [
            f"{code}[:{codec.levels[0]}-{codec.levels[-1]}]" if codec.levels else code
            for code, codec in _CODECS.items()
        ]
        msg = f"no compression {text!r}; valid are {', '.join(forms)}, or None"
        raise SchemaError(msg)
    return found
