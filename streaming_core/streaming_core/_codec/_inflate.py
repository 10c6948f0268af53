"""Expanding compressed bytes to exactly the size that is expected, in bounded memory."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from streaming_core._codec._buffers import Buffer, byte_views
from streaming_core.errors import DecompressionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Codec", "Decoder", "StreamCodec", "Wanted"]

_STREAM_PIECE = 1 << 20
# Every piece takes the interpreter's lock anew, and a busy main thread may keep it for 5 ms: few
# and large pieces where the whole result is held anyway.
_WHOLE_PIECE = 8 << 20
_LEAST_PIECE = 1 << 17  # one zstd block


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a decompression must yield, and how its errors name it."""

    code: str
    size: int
    where: str

    def error(self, text: str) -> DecompressionError:
        """Return the error that says `text` of these data."""
        return DecompressionError(
            f"{self.where}: the {self.code} data {text}. The file is damaged or belongs to another "
            "index: fetch it again, or write it again"
        )


class Decoder(Protocol):
    """Expands one member of a stream step by step, as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool:
        """Whether the member's end was reached, its checks included."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out before more goes in."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What was given beyond the member's end."""
        ...

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        """Take `data` (empty unless `needs_input`) and return about `max_length` bytes at most."""
        ...


class Codec(ABC):
    """One compression family. Stateless: any thread may call any method at any time."""

    code: ClassVar[str]
    """Its name in an index, and the file extension."""
    levels: ClassVar[range] = range(0)
    """The levels it knows, from fast to small."""
    default: ClassVar[int] = 0
    """The level of the plain code."""

    @abstractmethod
    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return all bytes of `views` compressed; the same whatever their division."""

    @abstractmethod
    def stream(self, chunks: Iterable[Buffer], wanted: Wanted) -> Iterator[bytes]:
        """Yield what `chunks` expand to, ending in an error unless it is exactly as wanted."""

    @abstractmethod
    def whole(self, data: memoryview, wanted: Wanted) -> bytes:
        """Return what `data` expands to."""


class StreamCodec(Codec):
    """A codec whose library expands step by step."""

    multi_member: ClassVar[bool] = True
    """Whether its tools take several members in a row as one stream."""

    @abstractmethod
    def decoder(self, limit: int) -> Decoder:
        """Return the decoder of a member that yields `limit` bytes at most."""

    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """Return what its decoder raises on bytes that are not its own."""

    def stream(self, chunks: Iterable[Buffer], wanted: Wanted) -> Iterator[bytes]:
        """Yield what `chunks` expand to."""
        return self._pieces(chunks, wanted, _STREAM_PIECE)

    def whole(self, data: memoryview, wanted: Wanted) -> bytes:
        """Return what `data` expands to."""
        # BytesIO grows in place and hands its memory over: one copy of the result, never two.
        # What the index says is not allocated in advance, as it may be wrong too.
        out = io.BytesIO()
        for piece in self._pieces([data], wanted, _WHOLE_PIECE):
            out.write(piece)
        return out.getvalue()

    def _pieces(self, chunks: Iterable[Buffer], wanted: Wanted, piece: int) -> Iterator[bytes]:
        decoder: Decoder | None = None
        errors = self.errors()
        consumed = produced = members = 0
        for data in _slices(chunks, piece):
            rest: Buffer = data
            while len(rest) or (decoder is not None and not decoder.needs_input):
                if decoder is None:
                    if members and not self.multi_member:
                        text = f"goes on after its end, at byte {consumed}"
                        raise wanted.error(text)
                    decoder = self.decoder(wanted.size - produced)
                    members += 1
                most = min(piece, max(wanted.size - produced + 1, _LEAST_PIECE))
                try:
                    out = decoder.decompress(rest, most)
                except errors as error:
                    end = consumed + len(data)
                    text = f"is broken between bytes {consumed} and {end}: {error}"
                    raise wanted.error(text) from error
                rest = b""
                produced += len(out)
                if produced > wanted.size:
                    text = f"expands to more than the {wanted.size} bytes expected"
                    raise wanted.error(text)
                if out:
                    yield out
                if decoder.eof:
                    rest, decoder = decoder.unused_data, None
            consumed += len(data)
        if decoder is not None or not members:
            text = (
                f"stops at byte {consumed}, before its end; {produced} of {wanted.size} bytes came"
            )
            raise wanted.error(text)
        if produced != wanted.size:
            text = f"expands to {produced} bytes, not to the {wanted.size} expected"
            raise wanted.error(text)


def _slices(chunks: Iterable[Buffer], size: int) -> Iterator[memoryview]:
    for chunk in chunks:
        for view in byte_views([chunk]):
            for at in range(0, len(view), size):
                yield view[at : at + size]
