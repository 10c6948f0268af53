"""Fixtures of data that was not converted: indexes, decoded views, and checkpoints, per format."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as pf
import pyarrow.orc as po
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from tests.compat.bucket import BUCKET, Bucket
from tests.compat.command import run_command
from tests.compat.jobs import opened
from tests.compat.rows import digest
from tests.servers.hf import Hub
from tests.servers.s3 import moto

from streaming_core import StreamingDataLoader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["make_hub", "make_litdata", "make_sources", "make_tables"]

_FILES: Final = 2
_ROWS: Final = 40
_LITDATA: Final = Path(__file__).parents[1] / "data" / "litdata"

Rows = list[dict[str, Any]]


def _row(number: int) -> dict[str, Any]:
    text = None if number % 7 == 3 else f"row {number} — {'ü' * (number % 5)}"
    return {"id": number, "text": text, "weight": number / 4}


def _table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows)


def _lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _delimited(rows: Rows, delimiter: str) -> bytes:
    out = io.BytesIO()
    pcsv.write_csv(_table(rows), out, pcsv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


def _arrow(path: Path, rows: Rows) -> None:
    table = _table(rows)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)


def _arrows(path: Path, rows: Rows) -> None:
    table = _table(rows)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)


def _avro(codec: str) -> Callable[[Path, Rows], None]:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "weight", "type": "double"},
    ]
    schema = {"type": "record", "name": "row", "fields": fields}

    def write(path: Path, rows: Rows) -> None:
        with path.open("wb") as file:
            fastavro.writer(file, schema, rows, codec=codec, sync_interval=200)

    return write


def _tar(path: Path, rows: Rows) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as out:
        for row in rows:
            parts = {"cls": str(row["id"]), "txt": str(row["text"]), "bin": "\x00\x01"}
            for end, text in parts.items():
                info = tarfile.TarInfo(f"sample-{row['id']:05d}.{end}")
                data = text.encode()
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))


def _text(rows: Rows) -> bytes:
    return "".join(f"{row['id']} → {row['text']}\n" for row in rows).encode()


def _partitioned(path: Path, rows: Rows) -> None:
    for part in (0, 1):
        folder = path.parent / f"part={part}"
        folder.mkdir(exist_ok=True)
        some = [row for row in rows if row["id"] % 2 == part]
        pq.write_table(_table(some), folder / f"{path.name}.parquet")


_WRITERS: Final[dict[str, tuple[str, Callable[[Path, Rows], object]]]] = {
    "parquet": (
        ".parquet",
        lambda path, rows: pq.write_table(_table(rows), path, row_group_size=9),
    ),
    "orc": (".orc", lambda path, rows: po.write_table(_table(rows), path, compression="zstd")),
    "arrow": (".arrow", _arrow),
    "arrow-stream": (".arrows", _arrows),
    "feather": (".feather", lambda path, rows: pf.write_feather(_table(rows), path, "lz4")),
    "avro-deflate": (".avro", _avro("deflate")),
    "avro-bzip2": (".avro", _avro("bzip2")),
    "jsonl": (".jsonl", lambda path, rows: path.write_bytes(_lines(rows))),
    "jsonl-gz": (".jsonl.gz", lambda path, rows: path.write_bytes(gzip.compress(_lines(rows)))),
    "json": (".json", lambda path, rows: path.write_text(json.dumps(rows, indent=1), "utf-8")),
    "csv": (".csv", lambda path, rows: path.write_bytes(_delimited(rows, ","))),
    "csv-gz": (
        ".csv.gz",
        lambda path, rows: path.write_bytes(gzip.compress(_delimited(rows, ","))),
    ),
    "tsv": (".tsv", lambda path, rows: path.write_bytes(_delimited(rows, "\t"))),
    "text": (".txt", lambda path, rows: path.write_bytes(_text(rows))),
    "text-gz": (".txt.gz", lambda path, rows: path.write_bytes(gzip.compress(_text(rows)))),
    "webdataset": (".tar", _tar),
    "webdataset-gz": (".tar.gz", _tar),
    "partitioned": ("", _partitioned),
}
_KEYS: Final = {"text": "text", "text-gz": "text", "webdataset": "cls", "webdataset-gz": "cls"}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "jsonl": {"unit_bytes": 700},
    "csv": {"null_values": [""], "unit_bytes": 700},
}
_VIEWS: Final[dict[str, list[dict[str, Any]]]] = {
    "parquet": [
        {},
        {"columns": ["weight", "id"]},
        {"filters": [["id", ">", 20]], "nulls": {"text": "none"}},
        {"nulls": "mask"},
    ],
    "jsonl": [{}, {"columns": ["id"]}],
    "partitioned": [{}, {"filters": [["part", "==", 1]]}],
}


def _write(folder: Path, name: str) -> str:
    """Write the files of one format below a folder, and return the pattern that means them."""
    folder.mkdir(parents=True)
    end, write = _WRITERS[name]
    for at in range(_FILES):
        write(folder / f"{at}{end}", [_row(n) for n in range(at * _ROWS, (at + 1) * _ROWS)])
    return "*/*.parquet" if name == "partitioned" else f"*{end}"


def make_sources(folder: Path) -> dict[str, Any]:
    """Read each format once, with an index beside it and without, and keep what that leaves."""
    bucket = folder / "bucket"
    cases: dict[str, Any] = {}
    with Bucket(bucket) as served:
        os.environ.update(served.environment)
        for name in _WRITERS:
            pattern = _write(bucket / "published" / name, name)
            for way in ("listed", "beside"):
                shutil.copytree(bucket / "published" / name, bucket / way / name)
            cases[name] = _read(name, pattern, folder, served)
    return {"cases": cases}


def _read(name: str, pattern: str, folder: Path, served: Bucket) -> dict[str, Any]:
    options = _OPTIONS.get(name)
    given = [f"--option={key}={json.dumps(value)}" for key, value in (options or {}).items()]
    run_command("index", f"s3://{BUCKET}/published/{name}/{pattern}", *given)
    run_command("index", str(folder / "bucket" / "beside" / name / pattern), *given)
    ways: dict[str, Any] = {}
    for way in ("published", "listed", "beside"):
        views: list[dict[str, Any]] = []
        for view in _VIEWS.get(name, [{}]) if way != "beside" else [{}]:
            stream = {"remote": f"{way}/{name}/{pattern}", **view}
            if options is not None:
                stream["format_options"] = options
            root = str(folder / "bucket") if way == "beside" else f"s3://{BUCKET}"
            local = folder / ("read" if way == "beside" else "local") / way / name
            views.append(_view(stream, root, local, _KEYS.get(name, "id"), served))
        ways[way] = views
        shutil.rmtree(folder / "read", ignore_errors=True)
    return {"key": _KEYS.get(name, "id"), "ways": ways}


def _view(
    stream: dict[str, Any], root: str, local: Path, key: str, served: Bucket | None
) -> dict[str, Any]:
    """Read a stream once in order, take a checkpoint of it shuffled, and report the samples."""
    there = {**stream, "remote": f"{root}/{stream['remote']}" if root else stream["remote"]}
    there["local"] = str(local)
    rows = list(opened({"streams": [there], "batch_size": 4}))
    shuffled = {"batch_size": 4, "shuffle": True, "streams": [there]}
    loader = StreamingDataLoader(opened(shuffled), batch_size=4, batch_format="rows")
    for _ in islice(iter(loader), 5):
        pass
    state = loader.state_dict()
    resumed = StreamingDataLoader(opened(shuffled), batch_size=4, batch_format="rows")
    assert state is not None
    resumed.load_state_dict(state)
    remaining = [row[key] for batch in resumed for row in batch]
    found: dict[str, Any] = {
        "stream": stream,
        "num_rows": len(rows),
        "first": json.loads(json.dumps(rows[0], default=repr)),
        "rows": digest(rows),
        "state": state,
        "remaining": [int(n) if isinstance(n, int) else str(n) for n in remaining],
    }
    if served is not None:
        served.forget()
        list(opened({"streams": [there], "batch_size": 4}))
        # What is asked of the store when everything is in the cache, as this release does it.
        found["listings"], found["reads"] = served.num_listings(), sorted(served.read_keys())
    return found


def make_litdata(folder: Path) -> dict[str, Any]:
    """Read chunks of litData as the other formats are read."""
    bucket = folder / "bucket"
    cases: dict[str, Any] = {}
    for name in ("table", "table_zstd", "nested"):
        for way in ("published", "listed"):
            shutil.copytree(_LITDATA / name, bucket / way / name)
    with Bucket(bucket) as served:
        os.environ.update(served.environment)
        for name, key in (("table", "s"), ("table_zstd", "s"), ("nested", "1")):
            remote = f"s3://{BUCKET}/published/{name}"
            run_command("index", remote, "--format", "litdata")
            ways: dict[str, Any] = {}
            for way in ("published", "listed"):
                stream = {"remote": f"{way}/{name}", "format": "litdata"}
                local = folder / "local" / way / name
                ways[way] = [_view(stream, f"s3://{BUCKET}", local, key, served)]
            cases[name] = {"key": key, "ways": ways}
    return {"cases": cases}


# --- tables ---------------------------------------------------------------------------------------


def make_tables(folder: Path) -> dict[str, Any]:
    """Write an Iceberg and a Delta table of several versions, and read them."""
    bucket = folder / "bucket"
    bucket.mkdir()
    rows = [[_row(n) for n in range(at * _ROWS, (at + 1) * _ROWS)] for at in range(2)]
    where = str(bucket / "delta")
    write_deltalake(where, _table(rows[0]))
    write_deltalake(where, _table(rows[1]), mode="append")
    DeltaTable(where).delete("id % 5 = 0")
    first = _iceberg(folder, bucket, rows)
    cases: dict[str, Any] = {}
    with Bucket(bucket) as served:
        os.environ.update(served.environment)
        streams: dict[str, dict[str, Any]] = {
            "delta": {"remote": f"s3://{BUCKET}/delta", "format": "delta"},
            "delta-version": {
                "remote": f"s3://{BUCKET}/delta",
                "format": "delta",
                "format_options": {"version": 0},
            },
            "iceberg": {"remote": "db.rows", "format": "iceberg"},
            "iceberg-snapshot": {
                "remote": "db.rows",
                "format": "iceberg",
                "format_options": {"snapshot_id": first},
            },
        }
        for name, stream in streams.items():
            there = with_catalog(stream, folder, served.url)
            found = _view(there, "", folder / "local" / name, "id", served)
            cases[name] = {**found, "key": "id", "stream": stream}
    return {"cases": cases}


def with_catalog(stream: dict[str, Any], folder: Path, url: str) -> dict[str, Any]:
    """Return a stream of a table with the catalog in `folder`, and its data at a server."""
    if stream["format"] != "iceberg":
        return stream
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"s3://{BUCKET}/iceberg",
        "s3.endpoint": url,
        "s3.access-key-id": "testing",
        "s3.secret-access-key": "testing",
        "s3.region": "us-east-1",
    }
    return {**stream, "format_options": {**stream.get("format_options", {}), "catalog": catalog}}


def _iceberg(folder: Path, bucket: Path, rows: list[Rows]) -> int:
    """Write an Iceberg table through a server, copy it to `bucket`; return its first snapshot."""
    with moto() as server, server.client() as client:
        client.create_bucket(Bucket=BUCKET)
        stream = {"format": "iceberg", "remote": "db.rows"}
        properties = with_catalog(stream, folder, server.url)["format_options"]["catalog"]
        catalog = load_catalog("default", **properties)
        catalog.create_namespace("db")
        table = catalog.create_table("db.rows", _table(rows[0]).schema)
        table.append(_table(rows[0]))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.append(_table(rows[1]))
        with table.update_schema() as update:
            update.rename_column("weight", "mass")
        catalog.close()
        for entry in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
            path = bucket / entry["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read())
    return int(snapshot.snapshot_id)


def make_hub(folder: Path) -> dict[str, Any]:
    """Read a split of a dataset of a Hugging Face Hub."""
    repo = "datasets/me/rows"
    entry = "- config_name: a\n  data_files:\n  - split: dev\n    path: x/*.parquet\n"
    tree = folder / "tree"
    (tree / "x").mkdir(parents=True)
    (tree / "README.md").write_text(f"---\nconfigs:\n{entry}---\n", encoding="utf-8")
    for at in range(_FILES):
        some = [_row(n) for n in range(at * _ROWS, (at + 1) * _ROWS)]
        pq.write_table(_table(some), tree / "x" / f"{at}.parquet", row_group_size=9)
    files = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file()
    }
    with Hub(repo) as hub, tempfile.TemporaryDirectory() as home:
        os.environ.update({"HF_ENDPOINT": hub.url, "HF_HOME": home})
        commit = hub.commit(repo, dict(files))
        stream = {
            "remote": f"hf://{repo}",
            "format": "hf",
            "format_options": {"config": "a", "split": "dev"},
        }
        found = _view(stream, "", folder / "local", "id", None)
    return {"cases": {"hub": {**found, "key": "id", "repo": repo, "commit": commit}}}
