"""Tables, data sets of the Hub and lists of files, read as data sets."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from tests.core.virtual.tables import catalog_properties, sqlite_catalog
from tests.servers.hf import Hub
from tests.servers.web import WebServer

from streaming_core import Stream, StreamingDataLoader, StreamingDataset
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = 1000


def _table(first: int = 0, rows: int = _ROWS) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"id": ids, "text": [f"row {n}" for n in ids], "part": ids % 4})


def _ids(dataset: StreamingDataset, workers: int = 0) -> list[int]:
    loader = StreamingDataLoader(dataset, batch_size=16, num_workers=workers)
    return [int(number) for batch in loader for number in batch["id"]]


def _opened(tmp_path: Path, remote: object, **given: Any) -> StreamingDataset:
    stream = Stream(remote=remote, local=tmp_path / "cache", **given)  # type: ignore[arg-type]
    return StreamingDataset(streams=[stream], batch_size=16, shuffle=True)


@pytest.fixture
def iceberg(tmp_path: Path) -> tuple[dict[str, Any], int]:
    """Return options that find the table `db.rows`, of which a snapshot had fewer rows."""
    with sqlite_catalog(tmp_path) as catalog:
        table = catalog.create_table("db.rows", schema=_table().schema)
        table.append(_table())
        first = table.current_snapshot()
        table.append(_table(_ROWS))
        with table.update_schema() as update:
            update.rename_column("text", "words")
    assert first is not None
    return {"catalog": catalog_properties(tmp_path)}, first.snapshot_id


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_an_iceberg_table_gives_every_row_once(
    iceberg: tuple[dict[str, Any], int], tmp_path: Path, workers: int
) -> None:
    """Under the names that its columns have now, and at an earlier snapshot those of then."""
    options, snapshot = iceberg
    dataset = _opened(tmp_path, "db.rows", format="iceberg", format_options=options)
    assert sorted(_ids(dataset, workers)) == list(range(2 * _ROWS))
    assert set(dataset[0]) == {"id", "words", "part"}
    then = _opened(
        tmp_path,
        "db.rows",
        format="iceberg",
        format_options={**options, "snapshot_id": snapshot},
        columns=["id"],
    )
    assert sorted(_ids(then, workers)) == list(range(_ROWS))


def test_a_table_that_is_rewritten_meanwhile_stays_what_it_was(
    iceberg: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    """Never no rows without a word."""
    options, _ = iceberg
    dataset = _opened(tmp_path, "db.rows", format="iceberg", format_options=options)
    with sqlite_catalog_again(tmp_path) as catalog:
        catalog.load_table("db.rows").overwrite(
            _table(5000, 10).rename_columns(["id", "words", "part"])
        )
    assert sorted(_ids(dataset)) == list(range(2 * _ROWS))
    state = dataset.state_dict(16, True)
    other = _opened(tmp_path / "new", "db.rows", format="iceberg", format_options=options)
    assert sorted(_ids(other)) == list(range(5000, 5010))
    with pytest.raises(Exception, match="other data"):
        other.load_state_dict(state)


def sqlite_catalog_again(folder: Path) -> Any:
    """Return the catalog that was made before, to be closed."""
    return closing(load_catalog("default", **catalog_properties(folder)))


def test_what_a_catalog_is_told_is_in_no_pickle(
    iceberg: tuple[dict[str, Any], int], tmp_path: Path
) -> None:
    """Nor in the cache."""
    options, _ = iceberg
    options["catalog"]["s3.secret-access-key"] = "do-not-tell"
    dataset = _opened(tmp_path, "db.rows", format="iceberg", format_options=options)
    assert dataset[0]["part"] == dataset[0]["id"] % 4
    assert b"do-not-tell" not in pickle.dumps(dataset)
    assert "do-not-tell" not in repr(dataset.streams)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"do-not-tell" in path.read_bytes()]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_delta_table_with_deleted_rows_and_partitions(tmp_path: Path, workers: int) -> None:
    """At the newest version and at an earlier one, mixed with nothing that was deleted."""
    where = str(tmp_path / "delta")
    write_deltalake(where, _table(), partition_by=["part"])
    write_deltalake(where, _table(_ROWS), mode="append", partition_by=["part"])
    DeltaTable(where).delete("id % 3 = 0")
    dataset = _opened(tmp_path, where, format="delta")
    wanted = [n for n in range(2 * _ROWS) if n % 3]
    assert sorted(_ids(dataset, workers)) == wanted
    assert all(row["part"] == row["id"] % 4 for row in dataset)
    first = _opened(tmp_path, where, format="delta", format_options={"version": 0})
    assert sorted(_ids(first)) == list(range(_ROWS))
    some = _opened(tmp_path, where, format="delta", filters=[("part", "==", 1)], columns=["id"])
    assert sorted(_ids(some)) == [n for n in wanted if n % 4 == 1]
    with pytest.raises(SchemaError, match="does not take snapshot"):
        _opened(tmp_path, where, format="delta", format_options={"snapshot": 3})


def test_a_data_set_of_the_hub_by_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration and split, at one commit."""
    with Hub("datasets/me/rows") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        entry = "- config_name: a\n  data_files:\n  - split: dev\n    path: x/*.parquet\n"
        files: dict[str, bytes | None] = {"README.md": f"---\nconfigs:\n{entry}---\n".encode()}
        for name, first in (("x/0.parquet", 0), ("x/1.parquet", _ROWS), ("y.parquet", 9000)):
            path = tmp_path / "one.parquet"
            pq.write_table(_table(first), path)
            files[name] = path.read_bytes()
        hub.commit("datasets/me/rows", files)
        dataset = _opened(
            tmp_path,
            "hf://datasets/me/rows",
            format="hf",
            format_options={"config": "a", "split": "dev"},
        )
        assert sorted(_ids(dataset)) == list(range(2 * _ROWS))
        with pytest.raises(SchemaError, match="no split 'train'"):
            _opened(
                tmp_path / "other",
                "hf://datasets/me/rows",
                format="hf",
                format_options={"config": "a", "split": "train"},
            )


def test_a_list_of_files_needs_no_listing(tmp_path: Path) -> None:
    """Which web servers do not have."""
    with WebServer() as server:
        for at in range(3):
            path = tmp_path / f"{at}.parquet"
            pq.write_table(_table(at * _ROWS), path)
            server.files.put(f"set/{at}/rows.parquet", path.read_bytes())
        remotes = [f"{server.url}/set/{at}/rows.parquet" for at in (2, 0)]
        dataset = _opened(tmp_path, remotes)
        assert sorted(_ids(dataset)) == [*range(_ROWS), *range(2 * _ROWS, 3 * _ROWS)]
    paths = [tmp_path / "1.parquet", str(tmp_path / "2.parquet")]
    assert len(_opened(tmp_path / "local", paths)) == 2 * _ROWS
    with pytest.raises(SchemaError, match="no one folder"):
        Stream(remote=["s3://a/1.parquet", "s3://b/2.parquet"])
