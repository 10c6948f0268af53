"""Results as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from _spec import Task
from _stats import estimate
from _work import WORK_TITLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _runner import Entry
    from _spec import Scenario

__all__ = ["markdown", "publish", "summarize", "write_files"]

_RUN_COLUMNS = (
    "num_done",
    "seconds",
    "cpu_seconds",
    "sync_seconds",
    "rss_before_bytes",
    "rss_peak_bytes",
    "num_files",
    "out_bytes",
    "requests",
    "fetched_bytes",
)
_PREFACE = """\
# Results

Written by `benchmarks/run.py --publish`; how it measures stands in `README.md` beside this file.
Rates are medians with the interval that holds them with 95 % confidence. Absolute figures belong to
the machine named under each heading; ratios within a table travel better.
"""


def summarize(entry: Entry) -> dict[str, Any]:
    """Turn the runs of one contender into the object that the result file holds."""
    summary: dict[str, Any] = {
        "name": entry.contender.name,
        "note": entry.contender.note,
        "versions": entry.versions,
        "payload_bytes": entry.payload_bytes,
        "error": entry.error,
        "runs": entry.runs,
    }
    if not entry.runs:
        return summary
    runs = entry.runs
    synced = [run["num_done"] / (run["seconds"] + run["sync_seconds"]) for run in runs]
    summary |= {
        "seconds": _interval([run["seconds"] for run in runs]),
        "samples_per_second": _interval([run["num_done"] / run["seconds"] for run in runs]),
        "synced_samples_per_second": _interval(synced),
        "cpu_seconds": estimate([run["cpu_seconds"] for run in runs]).median,
        "cpu_seconds_per_sample": estimate(
            [run["cpu_seconds"] / run["num_done"] for run in runs]
        ).median,
        "out_bytes": entry.runs[-1]["out_bytes"],
        "num_files": entry.runs[-1]["num_files"],
        "rss_growth_bytes": _rss_growth(entry.runs),
        "requests": _middle(entry.runs, "requests"),
        "fetched_bytes": _middle(entry.runs, "fetched_bytes"),
    }
    return summary


def _interval(values: list[float]) -> dict[str, float]:
    return asdict(estimate(values))


def _middle(runs: list[dict[str, Any]], name: str) -> float | None:
    """The median of what runs counted, None where they did not."""
    values = [run[name] for run in runs if run[name] is not None]
    return estimate(values).median if values else None


def _rss_growth(runs: list[dict[str, Any]]) -> int | None:
    """The largest rise of resident memory in a run, over what the data itself takes."""
    pairs = [(run["rss_before_bytes"], run["rss_peak_bytes"]) for run in runs]
    rises = [peak - before for before, peak in pairs if before is not None and peak is not None]
    return max(rises) if rises else None


def write_files(document: dict[str, Any], folder: Path) -> Path:
    """Write `document` as JSON and its runs as CSV into `folder`; return the JSON's path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{document['scenario']}-{document['started'].replace(':', '')}"
    path = folder / f"{stem}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["scenario", "work", "case", "contender", "run", *_RUN_COLUMNS])
        for case in document["cases"]:
            task = Task(**case["task"])
            for entry in case["contenders"]:
                for number, run in enumerate(entry["runs"], 1):
                    where = (document["scenario"], task.work, task.name)
                    figures = (run[name] for name in _RUN_COLUMNS)
                    rows.writerow([*where, entry["name"], number, *figures])
    return path


def markdown(document: dict[str, Any], scenario: Scenario) -> str:
    """Render `document` as a section: heading, machine, one table per case, notes."""
    machine = document["machine"]
    where = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['file_system']}, load {machine['load_before']:.1f} at the start; "
        f"{document['num_runs']} runs each, {document['started'][:10]}."
    )
    parts = [f"## {scenario.title}", scenario.text, where]
    parts += [_table(case, scenario) for case in document["cases"]]
    parts.append(_notes(document))
    return "\n\n".join(parts) + "\n"


def _table(case: dict[str, Any], scenario: Scenario) -> str:
    task = Task(**case["task"])
    columns = _columns(case, scenario)
    detail = f"; {task.num_workers} workers" if task.num_workers else ""
    if task.latency_ms is not None:
        detail += f"; {task.latency_ms} ms before each answer"
    if scenario.metric == "written":
        detail = f"; {task.name}"
    lines = [
        f"**{task.num_samples:,} {WORK_TITLES[task.work]}{detail}**",
        "",
        f"| | {' | '.join(columns)} |",
        f"| --- {'| --: ' * len(columns)}|",
    ]
    for entry in case["contenders"]:
        cells = (
            [column(entry) for column in columns.values()]
            if entry["runs"]
            else ["failed", *[""] * (len(columns) - 1)]
        )
        lines.append(f"| {entry['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _columns(case: dict[str, Any], scenario: Scenario) -> dict[str, Callable[[Any], str]]:
    """What a table shows, by heading: how a summary becomes the text of a cell."""
    in_seconds = scenario.metric == "seconds"
    key, digits = ("seconds", _seconds) if in_seconds else ("samples_per_second", _short)
    columns: dict[str, Callable[[Any], str]] = {
        "seconds" if in_seconds else "samples/s": lambda e: digits(e[key]["median"]),
        "95 %": lambda e: f"{digits(e[key]['low'])}–{digits(e[key]['high'])}",  # noqa: RUF001 - a range in print
    }
    for name in scenario.baselines:
        base = next((e for e in case["contenders"] if e["name"] == name and e["runs"]), None)
        columns[f"speed to {name}" if in_seconds else f"to {name}"] = _ratio(base)
    if not in_seconds:
        num_samples = case["task"]["num_samples"]
        columns["MB/s"] = lambda e: (
            f"{e[key]['median'] * e['payload_bytes'] / num_samples / 1e6:,.0f}"
        )
    if scenario.metric == "written":
        columns["samples/s once on disk"] = lambda e: _short(
            e["synced_samples_per_second"]["median"]
        )
    if scenario.metric == "read":
        columns["CPU µs per sample"] = lambda e: _seconds(e["cpu_seconds_per_sample"] * 1e6)
    elif scenario.metric == "fetched":
        columns["CPU s per GB"] = lambda e: f"{e['cpu_seconds'] * 1e9 / e['payload_bytes']:.2f}"
    else:
        columns["CPU s"] = lambda e: f"{e['cpu_seconds']:.2f}"
    if any(e.get("requests") is not None for e in case["contenders"]):
        columns["requests"] = lambda e: _count(e["requests"])
        columns["MB sent"] = lambda e: _megabytes(e["fetched_bytes"])
    columns["memory added, MB"] = lambda e: _megabytes(e["rss_growth_bytes"])
    if scenario.metric == "written":
        columns["output, MB"] = lambda e: _megabytes(e["out_bytes"])
    return columns


def _ratio(base: dict[str, Any] | None) -> Callable[[Any], str]:
    """How much faster than `base` somebody is; nothing where `base` has no figure."""
    if base is None:
        return lambda _: ""
    return lambda e: (
        f"{e['samples_per_second']['median'] / base['samples_per_second']['median']:.2f}"
    )


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _megabytes(number: float | None) -> str:
    return "" if number is None else f"{max(0, number) / 1e6:,.0f}"


def _seconds(seconds: float) -> str:
    """Three digits that mean something.

    Example:
        >>> _seconds(1.2345), _seconds(0.01234), _seconds(0.000456)
        ('1.23', '0.0123', '0.000456')
    """
    if seconds <= 0:
        return "0"
    return f"{seconds:.{max(0, 2 - math.floor(math.log10(seconds)))}f}"


def _short(rate: float) -> str:
    """Three digits that mean something.

    Example:
        >>> _short(3_331_000.0), _short(64_400.0), _short(7_942.0)
        ('3.33M', '64.4k', '7.94k')
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if rate >= unit:
            decimals = 2 - min(2, int(math.log10(rate / unit)))
            return f"{rate / unit:.{decimals}f}{letter}"
    return f"{rate:.0f}"


def _notes(document: dict[str, Any]) -> str:
    """Each contender's set-up and each failure, once."""
    lines: dict[str, None] = {}
    for case in document["cases"]:
        for entry in case["contenders"]:
            versions = ", ".join(f"{k} {v}" for k, v in sorted(entry["versions"].items()))
            lines[f"- *{entry['name']}*: {entry['note']}{f' ({versions})' if versions else ''}"] = (
                None
            )
            if entry["error"] is not None:
                where = f"{case['task']['work']}, {Task(**case['task']).name}"
                lines[f"- **failed**: *{entry['name']}*, {where}: {entry['error']}"] = None
    return "\n".join(lines)


def publish(section: str, scenario: str, path: Path) -> None:
    """Put `section` into the file at `path`, in place of the scenario's earlier one."""
    begin, end = f"<!-- {scenario} -->\n", f"<!-- end of {scenario} -->\n"
    text = path.read_text(encoding="utf-8") if path.exists() else _PREFACE
    block = begin + section + end
    earlier = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if earlier.search(text):
        text = earlier.sub(lambda _: block, text)
    else:
        text += "\n" + block
    path.write_text(text, encoding="utf-8")
