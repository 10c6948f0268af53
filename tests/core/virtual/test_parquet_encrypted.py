"""Parquet files of which some columns are encrypted: the others are read, these are refused.

In processes of their own, as Arrow's library ends the one in which such a column is looked at.
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

from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIGNATURE = 28
_TABLE = pa.table(
    {
        "x": pa.array(range(1000), pa.int64()),
        "y": pa.array([f"row {n}" for n in range(1000)]),
        "pair": [{"a": n, "b": -n} for n in range(1000)],
        "z": pa.array(np.arange(1000) / 7),
    }
)


class _Keys(pe.KmsClient):
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


def _try_all(path: str) -> None:
    """Print of each column what reading nothing but it gives."""
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
    print(json.dumps(found))


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
    print(json.dumps(counts))


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        ({"column_keys": {"c": ["x"]}}, {"x"}),
        ({"column_keys": {"c": ["pair.a"], "d": ["z"]}}, {"pair", "z"}),
        ({"uniform_encryption": True}, {"x", "y", "pair", "z"}),
    ],
)
def test_columns_are_read_or_refused(
    tmp_path: Path, options: dict[str, Any], hidden: set[str], signed: bool
) -> None:
    """And rows are counted in any case."""
    data = _encrypted(**options)
    path = tmp_path / "a.parquet"
    path.write_bytes(data if signed else _unsigned(data))
    found = _in_child(_try_all, str(path))
    assert found.pop("rows") == 1000
    assert "is encrypted" in found.pop("all")
    for name, result in found.items():
        if name in hidden:
            assert f"column '{name}" in result
            assert "is encrypted" in result
        else:
            assert result is True


def test_damaged_ones_end_no_process(tmp_path: Path) -> None:
    """Whatever of them is wrong."""
    path = tmp_path / "a.parquet"
    path.write_bytes(_unsigned(_encrypted(column_keys={"c": ["x"]})))
    counts = _in_child(_try_damaged, str(path))
    assert counts["read"] > 20
    assert counts["refused"] > 20
