"""The same rows in files of every format, written by others than us."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as pf
import pyarrow.orc as po
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["COUNT", "KINDS", "Written", "write_source"]

COUNT = 96
"""Rows of a source, over all its files."""
_FILES = 3

Rows = list[dict[str, Any]]


def _plain_row(number: int) -> dict[str, Any]:
    text = f"row {number} — {'ü' * (number % 5)}"
    return {"id": number, "text": text, "weight": number / 4}


def _text_row(number: int) -> dict[str, Any]:
    return {"text": f"{number} → a line"}


def _tar_row(number: int) -> dict[str, Any]:
    return {"__key__": f"sample-{number:05d}", "cls": number, "txt": f"text {number} ß"}


@dataclass(frozen=True)
class Written:
    """How rows are written in one format, and what they are then."""

    write: Callable[[Path, Rows], None]
    """Writes a file, whose name has no suffix yet."""
    row: Callable[[int], dict[str, Any]] = _plain_row
    """The row of each number."""
    number: Callable[[dict[str, Any]], int] = lambda row: int(row["id"])
    """The number of a row."""
    format: str = ""
    """The format's name, if that is not the one in the table below."""
    columns: dict[str, str] = field(
        default_factory=lambda: {"id": "int", "text": "str", "weight": "float64"}
    )
    """The same columns in MDS."""

    def rows(self, first: int = 0, count: int = COUNT) -> Rows:
        """Return some rows."""
        return [self.row(number) for number in range(first, first + count)]

    def numbers(self, batch: dict[str, Any]) -> list[int]:
        """Return the numbers of the rows of a batch of columns."""
        columns = {name: list(values) for name, values in batch.items()}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [self.number(row) for row in rows]


def _table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows)


def _parquet(path: Path, rows: Rows) -> None:
    pq.write_table(_table(rows), path.with_suffix(".parquet"), row_group_size=9)


def _orc(path: Path, rows: Rows) -> None:
    po.write_table(_table(rows), path.with_suffix(".orc"), compression="zstd")


def _arrow(path: Path, rows: Rows) -> None:
    table = _table(rows)
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def _stream(path: Path, rows: Rows) -> None:
    table = _table(rows)
    with pa.ipc.new_stream(path.with_suffix(".arrows"), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def _feather(path: Path, rows: Rows) -> None:
    pf.write_feather(_table(rows), path.with_suffix(".feather"), compression="lz4", chunksize=10)


def _avro(path: Path, rows: Rows) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "weight", "type": "double"},
    ]
    schema = {"type": "record", "name": "row", "fields": fields}
    with path.with_suffix(".avro").open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate", sync_interval=100)


def _jsonl(path: Path, rows: Rows) -> None:
    # Blank lines are no rows; the last one has no end.
    lines = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.with_suffix(".jsonl").write_text(lines, encoding="utf-8")


def _jsonl_gz(path: Path, rows: Rows) -> None:
    lines = "".join(json.dumps(row) + "\r\n" for row in rows)
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def _json(path: Path, rows: Rows) -> None:
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _csv(path: Path, rows: Rows) -> None:
    pcsv.write_csv(_table(rows), path.with_suffix(".csv"))


def _tsv(path: Path, rows: Rows) -> None:
    options = pcsv.WriteOptions(delimiter="\t")
    pcsv.write_csv(_table(rows), path.with_suffix(".tsv"), options)


def _text(path: Path, rows: Rows) -> None:
    text = "".join(f"{row['text']}\n" for row in rows)
    path.with_suffix(".txt").write_text(text, encoding="utf-8")


def _tar(path: Path, rows: Rows) -> None:
    with tarfile.open(path.with_suffix(".tar"), "w") as archive:
        for row in rows:
            for end in ("cls", "txt"):
                data = str(row[end]).encode()
                info = tarfile.TarInfo(f"{row['__key__']}.{end}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


KINDS: dict[str, Written] = {
    "parquet": Written(_parquet),
    "orc": Written(_orc),
    "arrow": Written(_arrow),
    "arrow-stream": Written(_stream, format="arrow"),
    "feather": Written(_feather, format="arrow"),
    "avro": Written(_avro),
    "jsonl": Written(_jsonl),
    "jsonl-gz": Written(_jsonl_gz, format="jsonl"),
    "json": Written(_json),
    "csv": Written(_csv),
    "tsv": Written(_tsv),
    "text": Written(
        _text,
        row=_text_row,
        number=lambda row: int(row["text"].split()[0]),
        columns={"text": "str"},
    ),
    "webdataset": Written(
        _tar,
        row=_tar_row,
        number=lambda row: int(row["cls"]),
        columns={"__key__": "str", "cls": "int", "txt": "str"},
    ),
}
"""Every format."""


def write_source(kind: str, folder: Path, numbers: Sequence[int] = range(COUNT)) -> Path:
    """Write rows into a few files of a format; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = KINDS[kind]
    bounds = [len(numbers) * at // _FILES for at in range(_FILES + 1)]
    for at in range(_FILES):
        rows = [written.row(number) for number in numbers[bounds[at] : bounds[at + 1]]]
        written.write(folder / f"part-{at}", rows)
    return folder
