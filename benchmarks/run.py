"""Compare this project with its peers: `python benchmarks/run.py [SCENARIO …]`.

Runs under the project's own environment; rivals run in `.venv-bench`, which `setup_peers.sh` makes.
Prints a table per case and leaves every single run as JSON and CSV in `bench-results/`.
"""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _machine import machine_record
from _process import ROOT
from _report import markdown, publish, summarize, write_files
from _runner import Settings, run_case
from scenarios import read, remote, start, tables, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from _spec import Scenario

__all__ = ["main"]

SCENARIOS: tuple[Scenario, ...] = (
    *write.SCENARIOS,
    *read.SCENARIOS,
    *start.SCENARIOS,
    *remote.SCENARIOS,
    *tables.SCENARIOS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what `argv` asks for; 0 when every contender did its work, 1 when one failed."""
    options = _parse(argv)
    chosen = [s for s in SCENARIOS if _matches(s.name, options.scenarios)]
    if not chosen:
        names = ", ".join(s.name for s in SCENARIOS)
        print(f"no scenario is called {' or '.join(options.scenarios)}; there are {names}")
        return 2
    complete = True
    for scenario in chosen:
        document, path = _run_scenario(scenario, options)
        section = markdown(document, scenario)
        print(f"\n{section}\nAll runs: {path}", flush=True)
        if options.publish:
            publish(section, scenario.name, ROOT / "benchmarks/RESULTS.md")
        complete &= all(e["error"] is None for c in document["cases"] for e in c["contenders"])
    return 0 if complete else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join(s.name for s in SCENARIOS)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", default=["*"], help=f"names or patterns: {names}")
    parser.add_argument(
        "--runs", type=int, default=5, help="counted runs of each, one more warms up"
    )
    parser.add_argument("--quick", action="store_true", help="tiny data: does it run at all?")
    parser.add_argument(
        "--contenders", action="append", metavar="PATTERN", help="only these; may be repeated"
    )
    parser.add_argument(
        "--cases",
        action="append",
        metavar="PATTERN",
        help="only these: raw, zstd:1, zstd:3, or data: ints, tokens, blobs",
    )
    parser.add_argument("--publish", action="store_true", help="put the tables into RESULTS.md")
    parser.add_argument("--results", type=Path, default=ROOT / "bench-results", metavar="FOLDER")
    parser.add_argument(
        "--work-dir", type=Path, default=None, metavar="FOLDER", help="where outputs go meanwhile"
    )
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, not {options.runs}")
    if options.publish and (options.quick or options.runs < 5):
        parser.error("--publish takes full size and at least five runs")
    return options


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _run_scenario(scenario: Scenario, options: argparse.Namespace) -> tuple[dict[str, Any], Path]:
    """Measure all chosen cases; the file is written after each, so a stopped run keeps the rest."""
    with tempfile.TemporaryDirectory(prefix="streaming-bench-", dir=options.work_dir) as folder:
        logs = options.results / "logs" / scenario.name
        settings = Settings(options.runs, Path(folder), logs, _say)
        document: dict[str, Any] = {
            "scenario": scenario.name,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": options.quick,
            "num_runs": options.runs,
            "machine": machine_record(Path(folder)),
            "cases": [],
        }
        for case in scenario.quick_cases if options.quick else scenario.cases:
            if not any(_matches(name, options.cases) for name in (case.task.name, case.task.work)):
                continue
            chosen = tuple(c for c in case.contenders if _matches(c.name, options.contenders))
            _say(f"{scenario.name}, {case.task.work}, {case.task.name}: {len(chosen)} contenders")
            entries = run_case(replace(case, contenders=chosen), settings)
            summaries = [summarize(entry) for entry in entries]
            document["cases"].append({"task": case.task.to_json(), "contenders": summaries})
            write_files(document, options.results)
    return document, write_files(document, options.results)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _leave(signum: int, _frame: FrameType | None) -> NoReturn:
    """End as on an error, so that processes and folders are cleaned up on the way."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
