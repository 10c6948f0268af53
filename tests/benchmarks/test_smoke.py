"""The benchmark command works end to end on tiny data, without any rival installed."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

RUN = Path(__file__).resolve().parents[2] / "benchmarks/run.py"
SCENARIOS = ("write-ints", "write-tokens", "write-blobs")


class Outcome(NamedTuple):
    """What one call of the command left behind."""

    documents: dict[str, dict[str, Any]]
    tables: dict[str, list[dict[str, str]]]
    printed: str
    left_over: list[str]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, RUN, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One call for all scenarios of our own writers; most of its time goes into imports."""
    folder = tmp_path_factory.mktemp("bench")
    work_dir = tmp_path_factory.mktemp("work")
    ours = ("--contenders", "streaming-core write*", "--cases", "raw", "--runs", "2")
    folders = ("--results", str(folder), "--work-dir", str(work_dir))
    done = run(*SCENARIOS, "--quick", *ours, *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    documents, tables = {}, {}
    for path in folder.glob("*.json"):
        document = json.loads(path.read_bytes())
        documents[document["scenario"]] = document
        with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
            tables[document["scenario"]] = list(csv.DictReader(file))
    return Outcome(documents, tables, done.stdout, [path.name for path in work_dir.iterdir()])


@pytest.mark.xdist_group("benchmarks")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_our_writers_are_measured_and_recorded(outcome: Outcome, scenario: str) -> None:
    """Every contender of ours leaves complete runs, a summary and a row in the table."""
    (case,) = outcome.documents[scenario]["cases"]
    assert case["task"]["compression"] is None
    names = [entry["name"] for entry in case["contenders"]]
    assert names[:2] == ["streaming-core write", "streaming-core write_batch"]
    for entry in case["contenders"]:
        assert entry["error"] is None
        assert len(entry["runs"]) == 2
        assert all(figures["seconds"] > 0 and figures["num_files"] > 1 for figures in entry["runs"])
        rate = entry["samples_per_second"]
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert entry["versions"].keys() >= {"python", "numpy", "streaming-core"}
        assert f"| {entry['name']} |" in outcome.printed
    machine = outcome.documents[scenario]["machine"]
    assert machine.keys() >= {"cpu", "cores", "memory_bytes", "file_system"}


@pytest.mark.xdist_group("benchmarks")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_equal_data_makes_equally_large_outputs(outcome: Outcome, scenario: str) -> None:
    """All ways to write get the same samples: their outputs have one size, above the data's."""
    (case,) = outcome.documents[scenario]["cases"]
    sizes = {figures["out_bytes"] for entry in case["contenders"] for figures in entry["runs"]}
    assert len(sizes) == 1
    assert sizes.pop() > case["contenders"][0]["payload_bytes"]


@pytest.mark.xdist_group("benchmarks")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_counted_run_is_a_row_of_the_csv(outcome: Outcome, scenario: str) -> None:
    """The CSV holds one row per contender and run, without the one that warmed up."""
    (case,) = outcome.documents[scenario]["cases"]
    runs = [(entry["name"], number) for entry in case["contenders"] for number in (1, 2)]
    assert [(row["contender"], int(row["run"])) for row in outcome.tables[scenario]] == runs


@pytest.mark.xdist_group("benchmarks")
def test_no_output_stays_behind(outcome: Outcome) -> None:
    """What the contenders wrote is removed when the command ends."""
    assert outcome.left_over == []


@pytest.mark.xdist_group("benchmarks")
def test_every_way_of_reading_is_measured_and_compared(tmp_path: Path) -> None:
    """What was read is compared value by value, so a figure stands for samples that are right."""
    ways = ("samples", "batches", "loader", "random", "take", "resume")
    done = run(
        *(f"read-{way}" for way in ways),
        *("--quick", "--contenders", "streaming-core*", "--cases", "ints", "--runs", "1"),
        *("--cases", "counts"),
        *("--results", str(tmp_path / "results"), "--work-dir", str(tmp_path)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for path in (tmp_path / "results").glob("*.json"):
        document = json.loads(path.read_bytes())
        for entry in document["cases"][0]["contenders"]:
            assert entry["error"] is None
            assert entry["samples_per_second"]["median"] > 0
        found[document["scenario"]] = len(document["cases"][0]["contenders"])
    assert found.keys() == {f"read-{way}" for way in ways}
    assert found["read-resume"] > 1


@pytest.mark.xdist_group("benchmarks")
def test_every_way_of_reading_parquet_is_measured_and_compared(tmp_path: Path) -> None:
    """Beside pyarrow alone, which has the same rows."""
    ways = ("scan", "shuffled", "rows", "loader")
    done = run(
        *(f"parquet-{way}" for way in ways),
        *("--quick", "--runs", "1"),
        *("--contenders", "streaming-core*", "--contenders", "pyarrow alone"),
        *("--results", str(tmp_path / "results"), "--work-dir", str(tmp_path)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = set()
    for path in (tmp_path / "results").glob("*.json"):
        document = json.loads(path.read_bytes())
        for entry in document["cases"][0]["contenders"]:
            assert entry["error"] is None
            assert entry["samples_per_second"]["median"] > 0
        found.add(document["scenario"])
    assert found == {f"parquet-{way}" for way in ways}


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
