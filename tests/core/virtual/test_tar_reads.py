"""How much of an archive is read, and in how many requests."""

from __future__ import annotations

import random
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.virtual.tar_archives import (
    Files,
    archive_of,
    read_table,
    reader_of,
    sample_files,
)
from tests.profiles import examples

from streaming_core._virtual._kinds._tar import Tar

# --- how much is read -----------------------------------------------------------------------------


@pytest.mark.slow
def test_large_files_are_hopped_over_from_several_places() -> None:
    """A quarter of a GB in files of 1 MB takes few bytes, and few answers one after the other."""
    rng = random.Random(1)  # noqa: S311 - repeatable
    files: Files = []
    for n in range(250):
        size = rng.randrange(700_000, 1_300_000)
        files += [(f"{n:04d}.jpg", bytes(size)), (f"{n:04d}.cls", b"%d" % n)]
    data = archive_of(files, tarfile.USTAR_FORMAT)
    kind = Tar()
    reader, store = reader_of(data)
    scan = kind.scan(reader)
    assert store.nbytes < len(data) // 20
    assert len(store.asked) < 70  # by hopping alone 250
    store.asked.clear()
    assert [row["cls"] for row in read_table(kind, reader, scan, ["cls"]).to_pylist()] == [
        *range(250)
    ]
    assert store.nbytes == sum(len(content) for name, content in files if name.endswith("cls"))
    store.asked.clear()
    assert read_table(kind, reader, scan, ["__key__"]).num_rows == 250
    assert not store.asked
    sizes = [len(value) for value in read_table(kind, reader, scan, None).column("jpg").to_pylist()]
    assert sizes == [len(content) for name, content in files if name.endswith("jpg")]


def test_small_files_are_read_in_large_pieces() -> None:
    """Each byte once, in few requests."""
    data = archive_of(sample_files(4000, 4000))
    reader, store = reader_of(data)
    Tar().scan(reader)
    assert store.nbytes <= len(data)
    assert len(store.asked) < 12


@settings(max_examples=examples(25))
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 3000), st.integers(60_000, 500_000)), min_size=1, max_size=150
    ),
    nested=st.booleans(),
)
def test_what_is_read_ahead_changes_nothing(sizes: list[int], nested: bool) -> None:
    """Any mixture of sizes, also of files that are archives themselves."""
    inner = archive_of([("x.jpg", b"1")] * 1000) if nested else b"\xaa" * 500_000
    content = inner * (500_000 // len(inner) + 1)
    data = archive_of((f"{n}.bin", content[:size]) for n, size in enumerate(sizes))
    kind = Tar()
    reader, store = reader_of(data)
    scan = kind.scan(reader)
    assert store.nbytes <= 2 * len(data) + (1 << 20)
    table = read_table(kind, reader, scan, None)
    assert table.column("__key__").to_pylist() == [str(n) for n in range(len(sizes))]
    assert table.column("bin").to_pylist() == [content[:size] for size in sizes]


def test_neighbours_are_one_range_and_far_files_are_not() -> None:
    """All columns are one; one column is its files."""
    files = [(f"{n}.{end}", b"x" * size) for n in range(9) for end, size in (("a", 9), ("b", 9000))]
    kind = Tar()
    reader, _ = reader_of(archive_of(files, tarfile.USTAR_FORMAT))
    scan = kind.scan(reader)
    (unit,) = scan.units
    assert len(kind.ranges(reader.file, scan.meta, unit, None)) == 1
    spans = kind.ranges(reader.file, scan.meta, unit, ["a", "absent"])
    assert [stop - start for start, stop in spans] == [9] * 9
    assert kind.ranges(reader.file, scan.meta, unit, ["absent"]) == []
    table = kind.decode(reader.file, scan.meta, unit, [], ["absent"])
    assert table.num_rows == 9
