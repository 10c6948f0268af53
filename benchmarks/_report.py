"""Results as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import json
import math
import re
from typing import TYPE_CHECKING, Any

from _stats import estimate
from _work import WORK_TITLES

if TYPE_CHECKING:
    from pathlib import Path

    from _runner import Entry
    from _spec import Scenario, Task

__all__ = ["markdown", "publish", "summarize", "write_files"]

_RUN_COLUMNS = (
    "seconds",
    "cpu_seconds",
    "sync_seconds",
    "rss_before_bytes",
    "rss_peak_bytes",
    "num_files",
    "out_bytes",
)
_PREFACE = """\
# Results

Written by `benchmarks/run.py --publish`; how it measures stands in `README.md` beside this file.
Rates are medians with the interval that holds them with 95 % confidence. Absolute figures belong to
the machine named under each heading; ratios within a table travel better.
"""


def summarize(task: Task, entry: Entry) -> dict[str, Any]:
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
    rate = estimate([task.num_samples / run["seconds"] for run in entry.runs])
    synced = estimate(
        [task.num_samples / (run["seconds"] + run["sync_seconds"]) for run in entry.runs]
    )
    summary |= {
        "samples_per_second": {"median": rate.median, "low": rate.low, "high": rate.high},
        "synced_samples_per_second": {
            "median": synced.median,
            "low": synced.low,
            "high": synced.high,
        },
        "cpu_seconds": estimate([run["cpu_seconds"] for run in entry.runs]).median,
        "out_bytes": entry.runs[-1]["out_bytes"],
        "num_files": entry.runs[-1]["num_files"],
        "rss_growth_bytes": _rss_growth(entry.runs),
    }
    return summary


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
        rows.writerow(["scenario", "work", "compression", "contender", "run", *_RUN_COLUMNS])
        for case in document["cases"]:
            task = case["task"]
            for entry in case["contenders"]:
                for number, run in enumerate(entry["runs"], 1):
                    where = (document["scenario"], task["work"], task["compression"] or "raw")
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
    parts += [_table(case, scenario.baseline) for case in document["cases"]]
    parts.append(_notes(document))
    return "\n\n".join(parts) + "\n"


def _table(case: dict[str, Any], baseline: str) -> str:
    task = case["task"]
    entries = case["contenders"]
    base = next(
        (e["samples_per_second"]["median"] for e in entries if e["name"] == baseline and e["runs"]),
        None,
    )
    caption = (
        f"**{task['num_samples']:,} {WORK_TITLES[task['work']]}; {task['compression'] or 'raw'}**"
    )
    heads = (
        "samples/s",
        "95 %",
        f"to {baseline}",
        "MB/s",
        "samples/s once on disk",
        "CPU s",
        "memory added, MB",
        "output, MB",
    )
    lines = [
        caption,
        "",
        f"| | {' | '.join(heads)} |",
        f"| --- {'| --: ' * len(heads)}|",
    ]
    lines += [_row(task, entry, base) for entry in entries]
    return "\n".join(lines)


def _row(task: dict[str, Any], entry: dict[str, Any], base: float | None) -> str:
    if not entry["runs"]:
        return f"| {entry['name']} | failed | | | | | | | |"
    rate = entry["samples_per_second"]
    cells = [
        entry["name"],
        _short(rate["median"]),
        f"{_short(rate['low'])}–{_short(rate['high'])}",  # noqa: RUF001 - a range in print
        "" if base is None else f"{rate['median'] / base:.2f}",
        f"{rate['median'] * entry['payload_bytes'] / task['num_samples'] / 1e6:,.0f}",
        _short(entry["synced_samples_per_second"]["median"]),
        f"{entry['cpu_seconds']:.2f}",
        "" if entry["rss_growth_bytes"] is None else f"{entry['rss_growth_bytes'] / 1e6:,.0f}",
        f"{entry['out_bytes'] / 1e6:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


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
                where = case["task"]["compression"] or "raw"
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
