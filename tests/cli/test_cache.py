"""`streaming-core cache`: what is kept is listed, and what is old is removed."""

from __future__ import annotations

import gc
import json
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import create_dataloader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Cli = Callable[..., Result]

_DAY = 86_400


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's cache with two views of a file, of which one is 10 days old."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "home"))
    pq.write_table(pa.table({"id": range(10), "x": range(10)}), tmp_path / "t.parquet")
    for columns in (["id"], ["x"]):
        loader, _ = create_dataloader(str(tmp_path / "t.parquet"), batch_size=5, columns=columns)
        assert len(list(loader)) == 2
        del loader
        gc.collect()
    old = min((tmp_path / "home").rglob("parquet-*"))
    then = time.time() - 10 * _DAY
    for path in old.rglob("*"):
        os.utime(path, (then, then))
    return tmp_path / "home"


def _views(home: Path) -> int:
    return sum(path.is_dir() for path in home.rglob("parquet-*"))


def test_what_is_kept_is_listed(cli: Cli, home: Path) -> None:
    """Place, bytes and last use; nothing is removed."""
    found = json.loads(cli("cache", "--json").stdout)
    assert found["folder"] == str(home)
    entries = found["entries"]
    assert sorted(entry["what"] for entry in entries) == ["decoded", "decoded", "index"]
    assert all(entry["sources"][0].endswith("t.parquet") for entry in entries)
    assert all(not entry["in_use"] and not entry["removed_bytes"] for entry in entries)
    ages = sorted(round((time.time() - entry["last_used"]) / _DAY) for entry in entries)
    assert ages == [0, 0, 10]
    shown = cli("cache", home)
    assert shown.exit_code == 0
    assert "10 days ago" in shown.stdout
    assert "removed" not in shown.stdout
    assert _views(home) == 2


@pytest.mark.parametrize(("days", "left"), [(30, 2), (10, 1), (9.5, 1), (0, 0)])
def test_what_was_not_used_for_so_long_is_removed(
    cli: Cli, home: Path, days: float, left: int
) -> None:
    """And nothing younger; with 0 all that no process uses."""
    found = json.loads(cli("cache", "--remove", days, "--json").stdout)
    assert _views(home) == left
    removed = [entry for entry in found["entries"] if entry["removed_bytes"]]
    assert len(removed) == (2 - left if left else 3)
    assert all(entry["removed_bytes"] == entry["num_bytes"] for entry in removed)
    assert bool(list(home.iterdir())) == bool(left)


def test_what_a_process_uses_is_not_removed(cli: Cli, home: Path, tmp_path: Path) -> None:
    """A loader that is being iterated keeps what it has mapped, and the index of it."""
    loader, _ = create_dataloader(str(tmp_path / "t.parquet"), batch_size=5, columns=["id"])
    batches = iter(loader)
    next(batches)
    shown = cli("cache", "--remove", 0)
    assert "now" in shown.stdout
    assert _views(home) == 1
    assert len(list(batches)) == 1


def test_a_place_without_a_cache(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache need not be there; a folder that is named must."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "none"))
    assert json.loads(cli("cache", "--json").stdout)["entries"] == []
    assert cli("cache").exit_code == 0
    failed = cli("cache", tmp_path / "none")
    assert failed.exit_code == 2
    assert "none" in failed.stderr
    assert cli("cache", "--remove", -1).exit_code == 2
