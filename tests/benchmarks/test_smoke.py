"""The benchmark command works end to end on tiny data, without any rival installed."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).resolve().parents[2] / "benchmarks/run.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, RUN, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def run_ours(tmp_path: Path, scenario: str, case: str) -> tuple[dict[str, Any], str]:
    """Run our own contenders once; give the result file and what was printed."""
    ours = ("--contenders", "streaming-core*", "--cases", case, "--runs", "2")
    folders = ("--results", str(tmp_path / "results"), "--work-dir", str(tmp_path))
    done = run(scenario, "--quick", *ours, *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results").glob("*.json")
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document, done.stdout


@pytest.mark.parametrize(
    ("scenario", "case"),
    [("write-ints", "raw"), ("write-tokens", "zstd:1"), ("write-blobs", "raw")],
)
def test_our_writers_are_measured_and_recorded(tmp_path: Path, scenario: str, case: str) -> None:
    """Every contender of ours leaves complete runs, a summary and a row in the table."""
    document, printed = run_ours(tmp_path, scenario, case)
    (only,) = document["cases"]
    assert only["task"]["compression"] == (None if case == "raw" else case)
    names = [entry["name"] for entry in only["contenders"]]
    assert names[:2] == ["streaming-core write", "streaming-core write_batch"]
    for entry in only["contenders"]:
        assert entry["error"] is None
        assert len(entry["runs"]) == 2
        assert all(figures["seconds"] > 0 and figures["out_bytes"] > 0 for figures in entry["runs"])
        rate = entry["samples_per_second"]
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert entry["versions"].keys() >= {"python", "numpy", "streaming-core"}
        assert f"| {entry['name']} |" in printed
    assert document["machine"].keys() >= {"cpu", "cores", "memory_bytes", "file_system"}


def test_equal_data_makes_equally_large_outputs(tmp_path: Path) -> None:
    """The ways to write get the same samples: their outputs have the same size, run after run."""
    document, _ = run_ours(tmp_path, "write-tokens", "raw")
    (only,) = document["cases"]
    sizes = {figures["out_bytes"] for entry in only["contenders"] for figures in entry["runs"]}
    assert len(sizes) == 1
    assert sizes.pop() > only["contenders"][0]["payload_bytes"]


def test_each_run_is_a_row_of_the_csv(tmp_path: Path) -> None:
    """The CSV holds one row per contender and counted run, and leaves no output behind."""
    document, _ = run_ours(tmp_path, "write-ints", "raw")
    (path,) = (tmp_path / "results").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    (only,) = document["cases"]
    runs = [(entry["name"], i) for entry in only["contenders"] for i in (1, 2)]
    assert [(row["contender"], int(row["run"])) for row in rows] == runs
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


def test_an_unknown_scenario_is_refused_with_the_names_there_are() -> None:
    """A misspelt name runs nothing and says what could have been meant."""
    done = run("wirte-ints")
    assert done.returncode == 2
    assert "write-ints" in done.stdout


def test_a_quick_run_is_never_published() -> None:
    """Tables of tiny data must not overwrite real ones."""
    done = run("--quick", "--publish")
    assert done.returncode == 2
    assert "full size" in done.stderr
