"""Parquet files that Arrow's library ends the process over: encrypted columns, broken footers.

So they are tried in processes of their own. Columns that can be read are, others are refused.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.core.virtual.kind_reading import Opened, damaged

from streaming_core._virtual._kinds._parquet_statistics import are_sound
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DATA = pytest.importorskip("pyarrow.tests").__path__[0]
_SIGNATURE = 28
_ENDED = "Unexpected end of stream"
_TABLE = pa.table(
    {
        "x": pa.array(range(1000), pa.int64()),
        "y": pa.array([f"row {n}" for n in range(1000)]),
        "pair": [{"a": n, "b": -n} for n in range(1000)],
        "z": pa.array(np.arange(1000) / 7),
    }
)


class _Keys(pe.KmsClient):  # type: ignore[misc] # Arrow has no stubs
    """Keeps keys as they are."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        del master_key_identifier
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        del master_key_identifier
        return base64.b64decode(wrapped_key)


def _encrypted(**options: Any) -> bytes:
    properties = pe.CryptoFactory(_Keys).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(footer_key="k", plaintext_footer=True, **options),
    )
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(_TABLE, row_group_size=300)
    return sink.getvalue()


def _footer(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def _unsigned(data: bytes) -> bytes:
    footer = _footer(data)[:-_SIGNATURE]
    head = data[: -8 - len(footer) - _SIGNATURE]
    return head + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _in_child(task: Callable[..., object], *arguments: str) -> Any:
    """Return what a function of this module prints when another process calls it."""
    call = f"from {__name__} import *; import {__name__} as m; m.{task.__name__}(*{arguments!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, check=False, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def _try_all(*paths: str) -> None:
    """Print for each file what reading each of its columns alone gives."""
    results: list[dict[str, Any]] = []
    for path in paths:
        sys.stderr.write(f"{path}\n")
        sys.stderr.flush()
        results.append(_columns_of(path))
    sys.stdout.write(json.dumps(results))


def _columns_of(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:  # noqa: PTH123 - a text
        opened = Opened("parquet", file.read())
    found: dict[str, Any] = {"rows": opened.rows}
    for columns in (*([name] for name in _TABLE.column_names), None):
        name = columns[0] if columns else "all"
        for unit in opened.scan.units:
            opened.kind.bounds(opened.file, opened.scan.meta, unit, columns or ["x", "z"])
        try:
            found[name] = opened.read(columns).equals(_TABLE.select(columns or _TABLE.schema.names))
        except SourceFormatError as error:
            found[name] = str(error)
    return found


def _try_damaged(path: str) -> None:
    """Print how many damaged files were refused, or read."""
    with open(path, "rb") as file:  # noqa: PTH123 - a text
        data = file.read()
    rng = np.random.default_rng(7)
    counts = {"read": 0, "refused": 0}
    for _ in range(400):
        broken = damaged(data, rng)
        for columns in (None, ["y"], ["pair", "z"]):
            try:
                opened = Opened("parquet", broken)
                for unit in opened.scan.units:
                    opened.kind.bounds(opened.file, opened.scan.meta, unit, ["x", "y", "z"])
                opened.read(columns)
            except SourceFormatError:
                counts["refused"] += 1
            except AssertionError:  # other rows than were counted: found where units are made
                counts["refused"] += 1
            else:
                counts["read"] += 1
    sys.stdout.write(json.dumps(counts))


def _try_every_byte(path: str) -> None:
    """Print which errors come of a footer of which one byte is another, whichever."""
    with open(path, "rb") as file:  # noqa: PTH123 - a text
        data = file.read()
    kinds: set[str] = set()
    for at in range(len(data) - 8 - len(_footer(data)), len(data) - 8):
        for byte in (0xFF, 0x80, data[at] ^ 0x40):
            broken = data[:at] + bytes([byte]) + data[at + 1 :]
            try:
                opened = Opened("parquet", broken)
                for unit in opened.scan.units:
                    opened.kind.bounds(opened.file, opened.scan.meta, unit, ["x", "a"])
                opened.read(["x"])
                opened.read()
            except Exception as error:  # noqa: BLE001 - all are told
                kinds.add(type(error).__name__)
    sys.stdout.write(json.dumps(sorted(kinds - {"AssertionError"})))


_HIDDEN: list[tuple[dict[str, list[str]], set[str]]] = [
    ({"c": ["x"]}, {"x"}),
    ({"c": ["pair.a"], "d": ["z"]}, {"pair", "z"}),
    ({"c": ["x", "y"], "d": ["pair.b", "pair.a", "z"]}, set(_TABLE.schema.names)),
]


@pytest.mark.process
def test_columns_are_read_or_refused(tmp_path: Path) -> None:
    """And rows are counted in any case."""
    cases: list[tuple[Path, set[str]]] = []
    for number, (keys, hidden) in enumerate(_HIDDEN):
        data = _encrypted(column_keys=keys)
        for name, changed in (("signed", data), ("unsigned", _unsigned(data))):
            path = tmp_path / f"{number}.{name}.parquet"
            path.write_bytes(changed)
            cases.append((path, hidden))
    results = _in_child(_try_all, *(str(path) for path, _ in cases))
    for (path, hidden), found in zip(cases, results, strict=True):
        assert found.pop("rows") == 1000, path
        assert "is encrypted" in found.pop("all"), path
        for name, result in found.items():
            if name in hidden:
                assert f"column '{name}" in result, path
                assert "is encrypted" in result, path
            else:
                assert result is True, (path, name)


@pytest.mark.process
@pytest.mark.parametrize("encrypted", [True, False])
def test_damaged_ones_end_no_process(tmp_path: Path, encrypted: bool) -> None:
    """Whatever of them is wrong, bounds of columns looked at too."""
    path = tmp_path / "a.parquet"
    if encrypted:
        path.write_bytes(_unsigned(_encrypted(column_keys={"c": ["x"]})))
    else:
        pq.write_table(_TABLE, path, row_group_size=300)
    counts = _in_child(_try_damaged, str(path))
    assert counts["read"] > 20
    assert counts["refused"] > 20


@pytest.mark.process
def test_any_byte_of_a_footer_may_be_wrong(tmp_path: Path) -> None:
    """Names that are no text, numbers out of range: errors of ours come of all of them."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2], "a": ["b", "c"]}), path)
    kinds = _in_child(_try_every_byte, str(path))
    assert set(kinds) <= {"SourceFormatError", "SourceChangedError"}
    assert "SourceFormatError" in kinds


def _try_bounds(path: str) -> None:
    """Print the least value that is known."""
    with open(path, "rb") as file:  # noqa: PTH123 - a text
        opened = Opened("parquet", file.read())
    (unit,) = opened.scan.units
    bounds = opened.kind.bounds(opened.file, opened.scan.meta, unit, ["v"])["v"]
    least = None if bounds.least is None else str(bounds.least)
    try:
        sys.stdout.write(json.dumps([least, opened.read()["v"].to_pylist()]))
    except SourceFormatError as error:
        sys.stdout.write(json.dumps([least, str(error)]))


@pytest.mark.process
def test_bounds_that_are_too_short_are_not_looked_at(tmp_path: Path) -> None:
    """Reading the rows is an error then, as any."""
    least, most = 0x1122334455667788, 0x1122334455667799
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"v": [least, most]}), path)
    assert _in_child(_try_bounds, str(path)) == [str(least), [least, most]]
    data = path.read_bytes()
    footer = short = _footer(data)
    for value in (least, most):
        short = short.replace(b"\x08" + value.to_bytes(8, "little"), b"\x01" + bytes([value & 127]))
    assert len(short) == len(footer) - 4 * 7
    path.write_bytes(data[: -8 - len(footer)] + short + len(short).to_bytes(4, "little") + b"PAR1")
    assert _in_child(_try_bounds, str(path)) == [None, "a.parquet, row group 0: " + _ENDED]


def test_statistics_of_honest_files_are_all_looked_at() -> None:
    """Of other writers too, so that filters leave out what they can."""
    files: list[bytes] = []
    for options in ({}, {"write_page_index": True}, {"compression": "zstd", "version": "1.0"}):
        sink = io.BytesIO()
        pq.write_table(_TABLE, sink, row_group_size=7, **options)
        files.append(sink.getvalue())
    for folder, _, names in os.walk(f"{_DATA}/data/parquet"):
        for name in names:
            with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123 - a text
                files.append(file.read())
    count = 0
    for data in filter(lambda data: data[-4:] == b"PAR1", files):
        metadata, footer = pq.read_metadata(io.BytesIO(data)), _footer(data)
        for group in range(metadata.num_row_groups):
            for at in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(at)
                assert are_sound(footer, chunk, metadata.schema.column(at))
                count += 1
    assert count > 1000
