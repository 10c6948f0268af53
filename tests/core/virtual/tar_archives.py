"""Archives for tests, and what is in them."""

from __future__ import annotations

import io
import random
import tarfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming_core._store import MemoryStore, Parts
from streaming_core._virtual import SourceFile, SourceReader
from streaming_core._virtual._kinds._tar import Tar
from streaming_core._virtual._kinds._tar_samples import split_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming_core._virtual import Scan

Files = list[tuple[str, bytes]]
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def archive_of(
    files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT, **more: Any
) -> bytes:
    """Return an archive of some files, as the standard library writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=more.pop("mode", "w"), format=form, **more) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class CountingStore(MemoryStore):
    """Counts what is asked for."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[tuple[int, int]]] = []

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int | None]]) -> Parts:
        """Return the ranges, and note them."""
        whole = [(start, stop) for start, stop in ranges if stop is not None]
        assert len(whole) == len(ranges)
        assert all(start < stop for start, stop in whole)  # an empty one costs a request
        self.asked.append(whole)
        return super().get_ranges(key, ranges)

    @property
    def nbytes(self) -> int:
        """How many bytes were asked for."""
        return sum(stop - start for asked in self.asked for start, stop in asked)


def reader_of(data: bytes, name: str = "a.tar") -> tuple[SourceReader, CountingStore]:
    """Return what reads a file of these bytes, and the store that it lies in."""
    store = CountingStore()
    info = store.put(name, [data])
    store.asked.clear()
    return SourceReader(store, SourceFile(name, info.size, info.etag)), store


def read_table(kind: Tar, reader: SourceReader, scan: Scan, columns: list[str] | None) -> pa.Table:
    """Return the rows of all units, which have as many as was counted."""
    tables = [
        scan.schema.empty_table() if columns is None else scan.schema.empty_table().select(columns)
    ]
    for unit in scan.units:
        wanted = kind.ranges(reader.file, scan.meta, unit, columns)
        table = kind.decode(reader.file, scan.meta, unit, reader.ranges(wanted), columns)
        assert table.num_rows == unit.samples
        tables.append(table if columns is None else table.select(columns))
    return pa.concat_tables(tables)


def rows_of(
    data: bytes, name: str = "a.tar", columns: list[str] | None = None, **options: str
) -> list[Any]:
    """Return the samples of an archive."""
    kind = Tar(**options)
    reader, _ = reader_of(data, name)
    found: list[Any] = read_table(kind, reader, kind.scan(reader), columns).to_pylist()
    return found


def expected_rows(data: bytes) -> list[dict[str, Any]]:
    """Return the samples, put together from what the standard library finds."""
    samples: list[dict[str, Any]] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            parts = split_name(info.name) if info.isreg() else None
            if parts is None:
                continue
            if not samples or samples[-1]["__key__"] != parts[0]:
                samples.append({"__key__": parts[0]})
            opened = archive.extractfile(info)
            assert opened is not None
            samples[-1][parts[1]] = opened.read()
    names = {name for sample in samples for name in sample}
    return [{name: sample.get(name) for name in names} for sample in samples]


def _sample(index: int, rng: random.Random, size: int) -> Files:
    key = f"train/{index:06d}"
    files = [(f"{key}.jpg", rng.randbytes(rng.randrange(size)))]
    if index % 3:
        files.append((f"{key}.cls", str(index).encode()))
    if index % 5 == 0:
        files.append((f"{key}.seg.png", b""))
    files.append((f"{key}.json", f'{{"text": "größe {index}"}}'.encode()))
    return files


def sample_files(count: int, size: int = 3000) -> Files:
    """Return the files of some samples; not all samples have all columns."""
    rng = random.Random(count)  # noqa: S311 - repeatable
    return [file for index in range(count) for file in _sample(index, rng, size)]
