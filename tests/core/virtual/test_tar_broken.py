"""Archives that are cut short, damaged or hostile: typed errors, never fewer samples."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.tar_archives import (
    archive_of,
    expected_rows,
    read_table,
    reader_of,
    rows_of,
    sample_files,
)

from streaming_core._virtual._kinds._tar import Tar
from streaming_core.errors import (
    SourceChangedError,
    SourceFormatError,
    StreamingError,
)

# --- what is broken -------------------------------------------------------------------------------


def test_every_cut_is_an_error() -> None:
    """An archive that ends early never passes for one with fewer samples."""
    data = archive_of(sample_files(6, 700))
    end = len(data.rstrip(b"\0"))
    whole = len(rows_of(data))
    seen = set()
    for cut in [*range(1, len(data), 37), *range(512, len(data), 512)]:
        if cut > end and cut // 512 > -(-end // 512):
            assert len(rows_of(data[:cut])) == whole
            seen.add("whole")
        else:
            with pytest.raises(SourceFormatError, match=r"a\.tar"):
                rows_of(data[:cut])
            seen.add("short")
    assert seen == {"whole", "short"}
    packed = archive_of(sample_files(6, 700), mode="w:gz")
    for cut in range(1, len(packed)):
        with pytest.raises(SourceFormatError, match=r"a\.tgz"):
            rows_of(packed[:cut], "a.tgz")


def test_an_archive_without_the_mark_of_its_end_is_an_error() -> None:
    """A writer that was killed between two files leaves such a one."""
    data = archive_of([("a.jpg", b"1"), ("b.jpg", b"2")])
    with pytest.raises(SourceFormatError, match=r"byte 2048: .*without the mark of its end"):
        rows_of(data[:2048])
    assert len(rows_of(data[:2560])) == 2


def test_what_follows_the_end_is_an_error() -> None:
    """Archives written one after the other would lose all but the first."""
    one = archive_of([("a.jpg", b"1")])
    with pytest.raises(SourceFormatError, match=f"at byte {len(one)} more follows.*--concatenate"):
        rows_of(one + one)
    with pytest.raises(SourceFormatError, match="more follows"):
        rows_of(one + bytes(3 << 20) + b"x")
    assert len(rows_of(one + bytes(3 << 20))) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"PK\x03\x04" + bytes(600),
        b"\x1f\x8b\x08" + bytes(1000),
        b"{" * 5000,
        bytes(range(256)) * 40,
    ],
)
def test_other_files_are_errors(data: bytes) -> None:
    """Compressed or not by their name."""
    with pytest.raises(SourceFormatError, match=r"a\.tar: no tar archive"):
        rows_of(data)
    with pytest.raises(SourceFormatError, match=r"a\.tar\.gz"):
        rows_of(data, "a.tar.gz")


def test_an_archive_of_nothing_has_no_samples() -> None:
    """Which is no error: a folder of archives may have one."""
    for name, mode in (("a.tar", "w"), ("a.tgz", "w:gz")):
        reader, _ = reader_of(archive_of([], mode=mode), name)
        scan = Tar().scan(reader)
        assert scan.units == ()
        assert scan.schema.names == ["__key__"]


@given(
    flips=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_changed_bytes_give_samples_or_typed_errors(flips: list[tuple[int, int]]) -> None:
    """Never another exception, and never the wrong number of rows in a unit."""
    data = bytearray(archive_of(sample_files(8, 900)))
    for at, value in flips:
        data[at % len(data)] = value
    with suppress(SourceFormatError):
        rows_of(bytes(data))


@given(data=st.data())
def test_changed_indexes_give_samples_or_typed_errors(data: st.DataObject) -> None:
    """What the index says is read back from a file too."""
    kind = Tar()
    reader, _ = reader_of(archive_of(sample_files(8, 900)))
    scan = kind.scan(reader)
    meta = bytearray(scan.meta)
    for _ in range(data.draw(st.integers(1, 3))):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(meta[: data.draw(st.integers(0, len(meta)))])
    for told in (bytes(meta), cut):
        with suppress(StreamingError):
            for unit in scan.units:
                wanted = kind.ranges(reader.file, told, unit, None)
                kind.decode(reader.file, told, unit, reader.ranges(wanted), None)


def test_sizes_that_lie_take_no_memory() -> None:
    """Neither a file of 8 EiB nor an extended header of gigabytes."""
    for kind, size in ((b"0", 1 << 62), (b"x", 1 << 33), (b"L", 1 << 40), (b"0", -1)):
        block = bytearray(archive_of([("a.jpg", b"1")], tarfile.GNU_FORMAT))
        block[124:136] = size.to_bytes(12, "big", signed=True)
        block[124] |= 0x80
        block[156:157] = kind
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block[:512])
        tracemalloc.start()
        with pytest.raises(SourceFormatError):
            rows_of(bytes(block))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        b"5 path=a\n",
        b"99 path=a\n",
        b"path=a\n",
        b"-1 a=b\n",
        b"0 a=b\n",
        b"8 pathxa\n",
        b"\xff" * 30,
    ],
)
def test_broken_extended_headers_are_errors(text: bytes) -> None:
    """Says where and what."""
    inner = bytearray(archive_of([("h", text)], tarfile.USTAR_FORMAT)[:1024])
    inner[156:157] = b"x"
    inner[148:156] = b" " * 8
    inner[148:156] = b"%06o\0 " % sum(inner[:512])
    with pytest.raises(SourceFormatError, match="extended header at byte 0 is broken"):
        rows_of(bytes(inner) + archive_of([("a.jpg", b"1")]))
    blank = bytes(inner[:512]) + b"12 path=a.b\n" + bytes(500)
    with pytest.raises(SourceFormatError):
        rows_of(blank + bytes(1024))


def test_a_compressed_archive_that_expands_without_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a fixed number of bytes, in the memory of a few pieces."""
    monkeypatch.setattr("streaming_core._virtual._kinds._tar._MOST_UNPACKED", 32 << 20)
    data = archive_of([("a.bin", bytes(64 << 20))], mode="w:gz")
    assert len(data) < 1 << 20
    tracemalloc.start()
    with pytest.raises(SourceFormatError, match="expands to more than 33554432 bytes"):
        Tar().scan(reader_of(data, "a.tgz")[0])
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_several_gzip_members_are_one_archive() -> None:
    """As programs that compress in parallel write, with zeros at the end as some devices add."""
    data = archive_of(sample_files(50))
    packed = b"".join(gzip.compress(data[at : at + 9999]) for at in range(0, len(data), 9999))
    assert rows_of(packed + bytes(100), "a.tgz", decode="bytes") == expected_rows(data)
    with pytest.raises(SourceFormatError, match="gzip data is broken"):
        rows_of(packed + b"junk", "a.tgz")
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 1
    with pytest.raises(SourceFormatError, match="gzip data is broken"):
        rows_of(bytes(broken), "a.tgz")


def test_a_file_that_changed_is_an_error() -> None:
    """Not a mixture of both."""
    reader, store = reader_of(archive_of(sample_files(10)))
    kind = Tar()
    scan = kind.scan(reader)
    store.put("a.tar", [archive_of(sample_files(11))])
    with pytest.raises(SourceChangedError):
        read_table(kind, reader, scan, None)
