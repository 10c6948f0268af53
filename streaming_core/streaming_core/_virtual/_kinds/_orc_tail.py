"""The end of an ORC file, and what it says of stripes and their streams. Pure: from bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from streaming_core._virtual._kinds._bounded import expand
from streaming_core._virtual._kinds._orc_bytes import fields, numbers, put
from streaming_core._virtual._kinds._orc_types import columns_of, row_bytes

__all__ = [
    "MAGIC",
    "Form",
    "PostScript",
    "Stripe",
    "Tail",
    "expanded",
    "post_script",
    "tail_of",
    "without_stripes",
]

MAGIC: Final = b"ORC"
_CODECS: Final = {1: "deflate", 2: "snappy", 4: "lz4", 5: "zstd"}
_NO_CODEC: Final = {3: "LZO", 6: "Brotli"}
_FOOTER_MOST: Final = 256 << 20
_CHUNK_HEAD: Final = 3
_ROWS_MOST: Final = 1 << 31
_KEPT: Final = frozenset({8, 9, 11, 12})
"""Numbers of a footer's fields that tell how, and by what, streams were written."""
_PADDING: Final = 16 << 10
"""Libraries guess how long a tail is, and read so many bytes before they look at it."""


class PostScript(msgspec.Struct, frozen=True):
    """The last bytes of a file."""

    footer: int
    """Bytes of the footer, which lies before it."""
    codec: int
    block: int
    """Bytes that a chunk expands to at most."""
    version: bytes
    writer: int
    magic: bool
    metadata: int
    """Bytes of the stripes' statistics, which lie before the footer."""


class Form(msgspec.Struct, frozen=True, array_like=True):
    """How the streams of a file are written; all of the footer that every stripe needs."""

    codec: int
    block: int
    version: bytes
    writer: int
    footer: bytes
    """The footer's fields without its stripes, statistics and the user's own."""
    types: int
    """How many types there are."""
    columns: tuple[tuple[int, int], ...]
    """For each column of the table its first number among all types, and that of the next one."""


class Stripe(msgspec.Struct, frozen=True, array_like=True):
    """Where a stripe is, and what is in it."""

    offset: int
    index: int
    data: int
    footer: int
    rows: int

    @property
    def streams_end(self) -> int:
        """Where its streams end, and its footer begins."""
        return self.offset + self.index + self.data

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.streams_end + self.footer


class Tail(msgspec.Struct, frozen=True):
    """All that a file's end says."""

    form: Form
    stripes: tuple[Stripe, ...]
    row_bytes: float
    """About how many bytes a row takes once it is decoded; 0 if nothing tells."""


# --- reading --------------------------------------------------------------------------------------


def post_script(data: bytes) -> PostScript:
    """Return what the last bytes of a file, without the very last, say.

    Raises `ValueError` if they are none, or the file cannot be read; says why.
    """
    said = numbers(data)
    version, magic = b"", False
    for number, _, content, raw in fields(data):
        if number == 4:  # noqa: PLR2004 - the version
            version += raw
        magic = magic or (number == 8000 and content == MAGIC)  # noqa: PLR2004 - the magic
    codec = said.get(2, 0)
    if codec in _NO_CODEC:
        msg = (
            f"it is compressed with {_NO_CODEC[codec]}, which is not read; write it again with "
            "zlib, snappy, lz4, zstd or none"
        )
        raise ValueError(msg)
    if codec and codec not in _CODECS:
        msg = f"it is compressed with a codec of number {codec}, which nobody knows"
        raise ValueError(msg)
    block = said.get(3, 256 << 10)
    if not 0 < block < 1 << 31:
        msg = f"its chunks have {block} bytes"
        raise ValueError(msg)
    return PostScript(said.get(1, 0), codec, block, version, said.get(6, 0), magic, said.get(5, 0))


def expanded(data: bytes, codec: int, block: int) -> bytes:
    """Return the bytes of a message or a stream, which lie in chunks if the file is compressed.

    Raises `ValueError` if a chunk is broken, or they are more than a message can have.
    """
    if not codec:
        return data
    out = bytearray()
    at = 0
    while at < len(data):
        head = int.from_bytes(data[at : at + _CHUNK_HEAD], "little")
        length = head >> 1
        chunk = data[at + _CHUNK_HEAD : at + _CHUNK_HEAD + length]
        if len(chunk) < length or at + _CHUNK_HEAD > len(data):
            msg = f"a chunk of {length} bytes where {len(chunk)} are left"
            raise ValueError(msg)
        most = min(block, _FOOTER_MOST - len(out))
        out += chunk if head & 1 else expand(_CODECS[codec], chunk, most)
        at += _CHUNK_HEAD + length
    return bytes(out)


def tail_of(data: bytes, script: PostScript, before: int) -> Tail:
    """Return what a footer says; stripes must end at the byte `before`, where the footer begins.

    Raises `ValueError` if it is broken.
    """
    kept: list[bytes] = []
    types: list[bytes] = []
    stripes: list[Stripe] = []
    statistics: list[bytes] = []
    rows = 0
    for number, value, content, raw in fields(expanded(data, script.codec, script.block)):
        if number == 3:  # noqa: PLR2004 - a stripe
            stripes.append(_stripe(content, before))
        elif number == 4:  # noqa: PLR2004 - a type
            types.append(content)
            kept.append(raw)
        elif number == 6:  # noqa: PLR2004 - rows of all stripes
            rows = value
        elif number == 7:  # noqa: PLR2004 - statistics of a column
            statistics.append(content)
        elif number == 10:  # noqa: PLR2004 - encryption
            msg = "it is encrypted, which is not read"
            raise ValueError(msg)
        elif number in _KEPT:
            kept.append(raw)
    counted = sum(stripe.rows for stripe in stripes)
    if counted != rows:
        msg = f"its stripes have {counted} rows, the file claims {rows}"
        raise ValueError(msg)
    form = Form(
        script.codec,
        script.block,
        script.version,
        script.writer,
        b"".join(kept),
        len(types),
        columns_of(types),
    )
    return Tail(form, tuple(stripes), row_bytes(types, statistics, rows))


def _stripe(data: bytes, before: int) -> Stripe:
    said = numbers(data)
    found = Stripe(*(said.get(number, 0) for number in range(1, 6)))
    if not 0 < found.offset <= found.end <= before or found.rows > _ROWS_MOST:
        msg = (
            f"a stripe of {found.rows} rows at bytes {found.offset} to {found.end}, where stripes "
            f"end before byte {before}"
        )
        raise ValueError(msg)
    return found


# --- writing --------------------------------------------------------------------------------------


def without_stripes(form: Form, stripes: tuple[Stripe, ...], end: int) -> bytes:
    """Return the tail of a file of these stripes alone, that ends at `end` but for the tail.

    Begins with zeros: whoever reads a tail reads more than it has at first.
    """
    footer = put(1, len(MAGIC)) + put(2, end) + form.footer
    for stripe in stripes:
        told = msgspec.structs.astuple(stripe)
        footer += put(3, b"".join(put(at, value) for at, value in enumerate(told, start=1)))
    footer += put(6, sum(stripe.rows for stripe in stripes))
    if form.codec:
        # Chunks that are not compressed are marked by the lowest bit.
        size = min(form.block, (1 << 22) - 1)
        pieces = (footer[at : at + size] for at in range(0, len(footer), size))
        footer = b"".join((len(p) << 1 | 1).to_bytes(_CHUNK_HEAD, "little") + p for p in pieces)
    script = (
        put(1, len(footer))
        + put(2, form.codec)
        + put(3, form.block)
        + form.version
        + put(5, 0)
        + put(6, form.writer)
        + put(8000, MAGIC)
    )
    return bytes(_PADDING) + footer + script + bytes([len(script)])
