"""Compressed text: the same rows, from as few bytes as can be, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tracemalloc
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard
from tests.core.virtual.text_reading import TextFile, survives

from streaming_core._virtual import Piece
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "br": lambda data: brotli.compress(data, quality=1),
}
MANY = sorted(PACK.keys() - {"br"})
TEXTS = [f"line {n} {n * n % 977:x}" for n in range(30_000)]
DATA = "\n".join(TEXTS).encode()


@pytest.mark.parametrize("code", PACK)
@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_all_rows_come_once(code: str, piece: int) -> None:
    """As from the file that was compressed."""
    file = TextFile(f"a.txt.{code}", PACK[code](DATA), unit_bytes=50_000, piece=piece)
    assert [row["text"] for row in file.rows()] == TEXTS
    assert len(file.units) > 4
    assert all(
        file.kind.ranges(file.file, file.scan.meta, unit, None) == [(0, file.file.size)]
        for unit in file.units
    )
    # Without a place to begin anew each unit needs the file: they are made in one go.
    assert file.family(3) == range(len(file.units))
    some = [1, 2, 5]
    tables = file.tables(some)
    assert [table.num_rows for table in tables] == [file.units[at].samples for at in some]
    assert all(
        table.equals(file.unit(file.units[at])) for table, at in zip(tables, some, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", MANY)
def test_members_are_read_alone(code: str) -> None:
    """A file in several members is fetched and expanded in parts; rows may span members."""
    texts = [os.urandom(600).hex() for _ in range(3000)]
    data = "\n".join(texts).encode()
    step = 1_100_001
    packed = b"".join(PACK[code](data[at : at + step]) for at in range(0, len(data), step))
    file = TextFile(f"a.txt.{code}", packed, unit_bytes=400_000)
    assert [row["text"] for row in file.rows()] == texts
    spans = [file.kind.ranges(file.file, file.scan.meta, unit, None)[0] for unit in file.units]
    assert len(spans) > 6
    assert max(stop - start for start, stop in spans) < len(packed)
    at, fetched = 0, 0
    while at < len(spans):
        family = file.family(at)
        assert family.start == at
        assert all(file.family(one) == family for one in family)
        fetched += spans[family.stop - 1][1] - spans[at][0]
        at = family.stop
    assert fetched <= 1.05 * len(packed)


@pytest.mark.parametrize("code", ["gz", "xz"])
def test_zeros_between_and_behind_members_are_passed_over(code: str) -> None:
    """Tools pad files, and accept that."""
    packed = PACK[code](b"a\n") + bytes(512) + PACK[code](b"b\n") + bytes(4)
    file = TextFile(f"a.txt.{code}", packed, unit_bytes=1)
    assert [row["text"] for row in file.rows()] == ["a", "b"]


def test_bgzip_has_few_marks() -> None:
    """What the index keeps does not grow with the number of small members."""
    packed = b"".join(gzip.compress(DATA[at : at + 500], 1) for at in range(0, len(DATA), 500))
    file = TextFile("a.txt.gz", packed)
    assert [row["text"] for row in file.rows()] == TEXTS
    assert len(file.scan.meta) < 1000


@pytest.mark.parametrize("code", PACK)
def test_broken_data_is_an_error_that_says_where(code: str) -> None:
    """Cut anywhere, or followed by something else."""
    packed = PACK[code](DATA[:20_000])
    for at in range(1, len(packed), max(1, len(packed) // 40)):
        with pytest.raises(SourceFormatError, match=rf"a\.txt\.{code}: the .* data"):
            TextFile(f"a.txt.{code}", packed[:at], piece=512)
    with pytest.raises(SourceFormatError, match="data"):
        TextFile(f"a.txt.{code}", packed + b"garbage that follows it")


@pytest.mark.parametrize("code", PACK)
def test_flipped_bytes_are_found_or_harmless(code: str) -> None:
    """Nothing but the error for it is raised."""
    packed = PACK[code](DATA[:20_000])
    for at in range(0, len(packed), max(1, len(packed) // 100)):
        flipped = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        survives(f"a.txt.{code}", flipped, unit_bytes=4000)


def test_what_was_flipped_after_indexing_is_found() -> None:
    """The checks of the compression hold at decoding, too."""
    file = TextFile("a.txt.gz", PACK["gz"](DATA))
    good = file.reader.whole()
    broken = Piece(0, good[:5000] + b"\0\0\0" + good[5003:])
    with pytest.raises(SourceFormatError, match=r"a\.txt\.gz: the gz data is broken"):
        file.kind.decode(file.file, file.scan.meta, file.units[-1], [broken], None)
    shorter = Piece(0, PACK["gz"](DATA[:5000]))
    with pytest.raises(SourceFormatError, match="index it again"):
        file.kind.decode(file.file, file.scan.meta, file.units[-1], [shorter], None)


@pytest.mark.parametrize("code", ["zst", "xz", pytest.param("bz2", marks=pytest.mark.slow), "br"])
def test_bombs_are_refused_unless_allowed(code: str) -> None:
    """A small file that expands to far more than it has is refused before its memory is taken."""
    packed = PACK[code](b"\n".join([bytes(100_000)] * 1000))
    tracemalloc.start()
    try:
        with pytest.raises(SourceFormatError, match="max_ratio"):
            TextFile(f"a.txt.{code}", packed, max_ratio=100)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    allowed = TextFile(f"a.txt.{code}", packed, max_ratio=10_000_000)
    assert sum(unit.samples for unit in allowed.units) == 1000


@pytest.mark.parametrize("code", ["lz4", "snappy", "zip"])
def test_unknown_compressions_are_named(code: str) -> None:
    """Such a file is refused, not passed over."""
    with pytest.raises(SourceFormatError, match=f"'{code}' cannot be read"):
        TextFile(f"a.txt.{code}", b"\x04\x22\x4d\x18abc")
