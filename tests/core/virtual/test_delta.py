"""Delta tables written by deltalake are planned once, and read as deltalake itself reads them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import struct
import uuid
import zlib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.core.virtual.tables import VECTOR_MAGIC, portable, read, same_rows

from streaming_core._virtual._tables import plan_delta
from streaming_core.errors import SchemaError, SourceChangedError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _numbers(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "text": pa.array(
                [None if i % 7 == 0 else f"ü{i}" for i in range(start, stop)], pa.string()
            ),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the place of a table of 3,000 rows in three versions."""
    place = str(tmp_path / "some tåble")
    for at in range(3):
        write_deltalake(place, _numbers(1000 * at, 1000 * at + 1000), mode="append")
    return place


def _oracle(path: str, version: int | None = None) -> pa.Table:
    return pa.table(DeltaTable(path, version=version).scan())


def test_a_table_reads_as_deltalake_reads_it(path: str) -> None:
    """All rows, exactly once, with nulls and other letters; also by URL."""
    plan = plan_delta(path)
    assert plan.snapshot == "2"
    assert [file.rows for file in plan.files] == [1000] * 3
    assert [file.key for file in plan.files] == sorted(file.key for file in plan.files)
    same_rows(plan, _oracle(path))
    assert plan_delta(f"file://{path}").fingerprint() == plan.fingerprint()
    assert plan_delta(DeltaTable(path)).fingerprint() == plan.fingerprint()
    copy = pickle.loads(pickle.dumps(plan))
    assert read(copy, ["text"]).equals(read(plan).select(["text"]))


def test_versions_and_times(path: str) -> None:
    """Each gives the rows of its time."""
    for version in range(3):
        plan = plan_delta(path, version=version)
        assert plan.snapshot == str(version)
        same_rows(plan, _oracle(path, version))
    when = DeltaTable(path, version=1).history(1)[0]["timestamp"]
    # Times of versions are those of the log's files, to the millisecond.
    now = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert plan_delta(path, as_of=now).snapshot == "2"
    assert int(plan_delta(path, as_of=_time(when + 2)).snapshot) >= 1


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def test_what_is_not_there_is_refused(path: str, tmp_path: Path) -> None:
    """The errors say what was looked for."""
    with pytest.raises(SchemaError, match="no Delta table"):
        plan_delta(str(tmp_path / "nothing"))
    with pytest.raises(SchemaError, match="version 9"):
        plan_delta(path, version=9)
    with pytest.raises(SchemaError, match="no version at 2001"):
        plan_delta(path, as_of=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(SchemaError, match="no time zone"):
        plan_delta(path, as_of=dt.datetime(2001, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(SchemaError, match="not both"):
        plan_delta(path, version=1, as_of=_time(0))


def test_a_rewrite_after_planning_changes_nothing(path: str) -> None:
    """The plan's own version is read; once its files are vacuumed, that is an error."""
    plan, before = plan_delta(path), _oracle(path)
    write_deltalake(path, _numbers(50_000, 50_010), mode="overwrite")
    same_rows(plan, before)
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceChangedError, match=r"\.parquet.*gone"):
        read(plan)


def test_a_filter_leaves_out_files_without_matching_rows(path: str) -> None:
    """The files that stay have all their rows."""
    plan = plan_delta(path, file_filter="id >= 1500 AND id < 1600")
    assert pc.min_max(read(plan).column("id")).as_py() == {"min": 1000, "max": 1999}
    for wrong in ("none = 1", "id = '", "id >"):
        with pytest.raises(SchemaError):
            plan_delta(path, file_filter=wrong)


def test_checkpoints_and_compaction_change_nothing_but_files(path: str) -> None:
    """The same rows from a checkpoint, and from files that were put together."""
    wanted = plan_delta(path).fingerprint()
    table = DeltaTable(path)
    table.create_checkpoint()
    assert plan_delta(path).fingerprint() == wanted
    table.optimize.compact()
    plan = plan_delta(path)
    assert len(plan.files) == 1
    same_rows(plan, _oracle(path))


# --- partitions -----------------------------------------------------------------------------------


def _wide() -> pa.Table:
    moment = dt.datetime(2024, 2, 29, 12, 30, 1, 999, tzinfo=dt.UTC)
    rows = [
        {
            "id": i,
            "day": None if i % 5 == 4 else dt.date(2024, 1, 1 + i % 2),
            "lang": ["a/b c%2 =?#", "ü", "%20", None][i % 4],
            "moment": moment + dt.timedelta(days=i % 2),
            "local": moment.replace(tzinfo=None),
            "price": Decimal("1.25") * (i % 2),  # of others deltalake writes a broken text
            "flag": bool(i % 2),
            "number": 0.1 * (i % 2),
            "inner": None if i % 3 == 0 else {"x": i, "y": [None, f"{i}"]},
        }
        for i in range(60)
    ]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("lang", pa.string()),
            ("moment", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(9, 2)),
            ("flag", pa.bool_()),
            ("number", pa.float64()),
            ("inner", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


_PARTS = ["day", "lang", "moment", "local", "price", "flag", "number"]


@pytest.mark.parametrize("mode", ["none", "name", "id"])
@pytest.mark.parametrize("parts", [[], ["lang"], _PARTS])
def test_partitions_of_every_type_in_every_mode_of_mapping(
    tmp_path: Path, parts: list[str], mode: str
) -> None:
    """With nulls and odd letters, which may also stand in the files' names."""
    configuration = {"delta.columnMapping.mode": mode} if mode != "none" else {}
    for at, rows in enumerate((_wide(), _wide().drop_columns("local"))):
        # With times without a zone the table lists its features, and mapping is none of them.
        path = str(tmp_path / f"täble {at}")
        known = [part for part in parts if part in rows.column_names]
        write_deltalake(path, rows, partition_by=known, configuration=configuration)
        plan = plan_delta(path)
        same_rows(plan, _oracle(path))
        same_rows(plan, rows)


def test_bytes_are_read_from_the_log_as_the_protocol_has_them(tmp_path: Path) -> None:
    r"""They stand there as `\u0001`, and are one byte each."""
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "raw": pa.array([b"\x01\xff", b"ab"])})
    write_deltalake(path, rows, partition_by=["raw"])
    found = read(plan_delta(path)).sort_by("id").column("raw").to_pylist()
    assert found == [b"\x01\xff", b"ab"]


# --- columns --------------------------------------------------------------------------------------


def _log(path: str, version: int) -> list[dict[str, Any]]:
    with open(f"{path}/_delta_log/{version:020d}.json", encoding="utf-8") as lines:  # noqa: PTH123 - text of a path
        return [json.loads(line) for line in lines]


def _commit(path: str, version: int, actions: Iterable[dict[str, Any]]) -> None:
    with open(f"{path}/_delta_log/{version:020d}.json", "w", encoding="utf-8") as out:  # noqa: PTH123 - see above
        out.writelines(json.dumps(action) + "\n" for action in actions)


def _schema_of(actions: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    return metadata, json.loads(metadata["schemaString"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_and_dropped_columns_of_a_mapped_table(tmp_path: Path, mode: str) -> None:
    """Found by the name or the id in files; in structs, too; a name that comes back is another."""
    path = str(tmp_path / "t")
    rows = _wide().drop_columns("local")  # whose feature would turn the mapping off
    write_deltalake(path, rows, configuration={"delta.columnMapping.mode": mode})
    metadata, schema = _schema_of(_log(path, 0))
    fields = {field["name"]: field for field in schema["fields"]}
    fields["number"]["name"] = "amount"
    fields["inner"]["type"]["fields"][0]["name"] = "renamed"
    schema["fields"].remove(fields["flag"])
    added = {"delta.columnMapping.id": 99, "delta.columnMapping.physicalName": "col-99"}
    schema["fields"].append({"name": "flag", "type": "string", "nullable": True, "metadata": added})
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"]["delta.columnMapping.maxColumnId"] = "99"
    _commit(path, 1, [{"metaData": metadata}])
    plan = plan_delta(path)
    found = read(plan).sort_by("id")
    assert found.column("flag").null_count == 60
    assert found.column("amount").to_pylist() == _wide().column("number").to_pylist()
    assert found.column("inner")[1].as_py() == {"renamed": 1, "y": [None, "1"]}
    same_rows(plan, _oracle(path))
    same_rows(plan_delta(path, version=0), _oracle(path, 0))


def test_added_columns_are_null_in_older_files(path: str) -> None:
    """And of the newer files they have values."""
    more = _numbers(5000, 5100).append_column("more", pa.array([1.5] * 100))
    write_deltalake(path, more, mode="append", schema_mode="merge")
    same_rows(plan_delta(path), _oracle(path))


# --- deletion vectors -----------------------------------------------------------------------------


def _z85(data: bytes) -> str:
    out = ""
    for at in range(0, len(data), 4):
        number, digits = int.from_bytes(data[at : at + 4], "big"), ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits = _Z85[digit] + digits
        out += digits
    return out


def _vector(positions: Iterable[int]) -> bytes:
    return struct.pack("<I", VECTOR_MAGIC) + portable(positions)


def _delete(path: str, version: int, gone: dict[int, list[int]], *, inline: bool) -> Path:
    """Write a version with deletion vectors of some of the table's files; return their file."""
    table = DeltaTable(path)
    adds = [action["add"] for at in range(version) for action in _log(path, at) if "add" in action]
    adds.sort(key=lambda add: json.loads(add["stats"])["minValues"]["id"])
    name = uuid.uuid4()
    file = Path(path) / f"deletion_vector_{name}.bin"
    content = b"\x01"
    metadata, _ = _schema_of(_log(path, 0))
    metadata["configuration"] = {"delta.enableDeletionVectors": "true"}
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for at, positions in gone.items():
        vector = _vector(positions)
        descriptor: dict[str, Any] = {"cardinality": len(positions)}
        if inline:
            vector += b"\0" * (-len(vector) % 4)
            descriptor |= {"storageType": "i", "pathOrInlineDv": _z85(vector)}
        else:
            descriptor |= {"storageType": "u", "pathOrInlineDv": _z85(name.bytes)}
            descriptor["offset"] = len(content)
            content += struct.pack(">I", len(vector)) + vector
            content += struct.pack(">I", zlib.crc32(vector))
        descriptor["sizeInBytes"] = len(vector)
        removed = {"path": adds[at]["path"], "deletionTimestamp": 1, "dataChange": True}
        actions += [{"remove": removed}, {"add": {**adds[at], "deletionVector": descriptor}}]
    file.write_bytes(content)
    _commit(path, version, actions)
    table.update_incremental()
    assert table.version() == version
    return file


@pytest.mark.parametrize("inline", [False, True])
def test_deletion_vectors_are_applied_as_deltalake_applies_them(path: str, inline: bool) -> None:
    """In a file of their own or in the log; an older version has all rows."""
    gone = {
        0: sorted(np.random.default_rng(1).choice(1000, 301, replace=False).tolist()),
        2: [*range(100, 900), 999],
    }
    _delete(path, 3, gone, inline=inline)
    plan = plan_delta(path)
    assert plan.snapshot == "3"
    assert sorted(len(file.deleted) for file in plan.files) == [0, 301, 801]
    assert [file.rows for file in plan.files] == [1000] * 3
    oracle = _oracle(path)
    assert oracle.num_rows == 3000 - 301 - 801
    same_rows(plan, oracle)
    wanted = set(range(3000)) - set(gone[0]) - {2000 + row for row in gone[2]}
    assert set(read(plan).column("id").to_pylist()) == wanted
    assert read(plan_delta(path, version=2)).num_rows == 3000


def test_deletion_vectors_that_are_gone_or_broken_are_errors(path: str) -> None:
    """Never all rows where some are deleted."""
    file = _delete(path, 3, {1: [5, 6]}, inline=False)
    good = file.read_bytes()
    file.write_bytes(good[:9] + b"\xff" + good[10:])
    with pytest.raises((SchemaError, SourceFormatError)):
        plan_delta(path)
    file.unlink()
    with pytest.raises(SourceChangedError, match="gone"):
        plan_delta(path)


def test_a_vector_beyond_its_file_is_refused(path: str) -> None:
    """A table that deletes rows that there are not is broken."""
    _delete(path, 3, {1: [5, 1000]}, inline=True)
    with pytest.raises((SchemaError, SourceFormatError), match="1000"):
        plan_delta(path)


def test_files_outside_of_the_tables_folder(tmp_path: Path) -> None:
    """As a shallow clone has them, by absolute URL: no filter drops them unseen."""
    origin, clone = str(tmp_path / "a b"), str(tmp_path / "clone")
    write_deltalake(origin, _numbers(0, 1000))
    (Path(clone) / "_delta_log").mkdir(parents=True)
    actions = _log(origin, 0)
    for action in actions:
        if "add" in action:
            action["add"]["path"] = f"file://{tmp_path}/a%20b/{action['add']['path']}"
    _commit(clone, 0, actions)
    write_deltalake(clone, _numbers(5000, 5100), mode="append")
    plan = plan_delta(clone)
    assert plan.root == str(tmp_path)
    same_rows(plan, _oracle(clone))
    near = read(plan_delta(clone, file_filter="id < 10")).column("id").to_pylist()
    assert set(range(1000)) <= set(near)
    assert read(plan_delta(clone, file_filter="id > 4000")).num_rows >= 100
    _delete(clone, 2, {0: [1, 2, 3]}, inline=True)
    assert read(plan_delta(clone)).num_rows == 1097


# --- what is not supported ------------------------------------------------------------------------


@pytest.mark.parametrize("feature", ["variantType", "typeWidening", "someFeatureOfTomorrow"])
def test_features_that_are_not_supported_are_named(path: str, feature: str) -> None:
    """A table that needs them would be read wrongly."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature],
    }
    _commit(path, 3, [{"protocol": protocol}])
    with pytest.raises(SchemaError, match=feature):
        plan_delta(path)


def test_files_without_statistics_are_counted_when_they_are_scanned(path: str) -> None:
    """The log need not say how many rows a file has."""
    actions = _log(path, 0)
    for action in actions:
        action.get("add", {}).pop("stats", None)
    _commit(path, 0, actions)
    plan = plan_delta(path)
    assert sorted(file.rows for file in plan.files) == [-1, 1000, 1000]
    same_rows(plan, _oracle(path))
