"""Samples, and what verification found, for people."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from streaming_core._units import format_bytes
from streaming_core.cli._render import count_of, facts, text
from streaming_core.cli._scan import show_numbers
from streaming_core.cli._values import show_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core.cli._cached import CacheReport
    from streaming_core.cli._check import Finding
    from streaming_core.cli._index_files import IndexReport
    from streaming_core.cli._layout import Spread
    from streaming_core.cli._rebuild import FixReport
    from streaming_core.cli._verify import Report

__all__ = ["print_cache", "print_fix", "print_index", "print_report", "print_sample"]

_MAX_FINDINGS: Final = 100
_VALUE_WIDTH: Final = 240
_WHERE_WIDTH: Final = 40
_MAX_NAMES: Final = 20


def print_sample(number: int, shard: int, sample: Mapping[str, Any], *, full: bool) -> None:
    """Print one sample as a list of its columns."""
    console = Console(highlight=False)
    title = text(f"sample {number:,}", "bold cyan")
    console.print(title.append(f"  shard {shard:,}", "not bold dim"))
    width = None if full else _VALUE_WIDTH
    values = [(name, show_value(value, width=width)) for name, value in sample.items()]
    console.print(facts(values))


def print_report(report: Report) -> None:
    """Print what `verify` found, problems first and the summary last."""
    console = Console(highlight=False)
    if report.problems:
        console.print(_findings("problem", report.problems))
    if report.warnings:
        console.print(_findings("warning", report.warnings))
    if report.undecoded_columns:
        names = ", ".join(report.undecoded_columns)
        console.print(
            text(f"not decoded, for it could run code: {names} (--allow-unsafe-types decodes)")
        )
    verdict = text("ok", "bold green")
    if not report.ok:
        verdict = text(count_of(len(report.problems), "problem"), "bold red")
    if report.warnings:
        verdict.append(f", {count_of(len(report.warnings), 'warning')}", "yellow")
    if report.mode == "index":
        console.print(verdict.append(" in the index; no file was looked at", "not bold default"))
        return
    looked = f"{count_of(report.num_shards, 'shard')}, {count_of(report.num_samples, 'sample')}"
    looked += f", {format_bytes(report.num_bytes)}"
    how = "presence and sizes only"
    if report.mode == "full":
        how = "all bytes and samples; " + ("sums checked" if report.has_sums else "no file of sums")
    console.print(verdict.append(f": {looked} ({how})", "not bold default"))


def print_fix(report: FixReport) -> None:
    """Print what `verify --fix` did to the index."""
    console = Console(highlight=False)
    if report.action == "none":
        console.print(text("the index is valid and was not touched"))
        return
    if report.action == "refused":
        console.print(text(f"the index is {report.reason}, and no new one was written", "bold red"))
        if report.problems:
            console.print(_findings("problem", report.problems))
        return
    kept = f"; the old one is kept as {report.kept_as}" if report.kept_as else ""
    what = f"{count_of(report.num_shards, 'shard')} and {count_of(report.num_samples, 'sample')}"
    console.print(
        text(f"the index was {report.reason}; rebuilt it from {what}{kept}", "bold green")
    )
    if report.missing_numbers:
        numbers = show_numbers(report.missing_numbers)
        console.print(text(f"left out, because their files are not there: {numbers}", "yellow"))


def _findings(what: str, findings: Sequence[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    with_shard = any(finding.shard is not None for finding in findings)
    if with_shard:
        table.add_column("shard", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold", max_width=_WHERE_WIDTH)
    table.add_column("kind", no_wrap=True, style="red" if what == "problem" else "yellow")
    table.add_column(what, overflow="fold")
    for finding in findings[:_MAX_FINDINGS]:
        shard = "" if finding.shard is None else f"{finding.shard:,}"
        row = [text(finding.file or ""), text(finding.kind), text(finding.text)]
        table.add_row(*([shard] if with_shard else []), *row)
    if len(findings) > _MAX_FINDINGS:
        rest = f"… and {len(findings) - _MAX_FINDINGS:,} more; --json lists all"
        table.add_row(*[""] * (3 if with_shard else 2), text(rest))
    return table


def print_index(report: IndexReport) -> None:
    """Print what `index` found, names of files that changed first."""
    console = Console(highlight=False)
    changes = (("added", report.added), ("removed", report.removed), ("replaced", report.replaced))
    for what, names in changes:
        for name in names[:_MAX_NAMES]:
            console.print(text(f"{what}  {name}"), soft_wrap=True)
        if len(names) > _MAX_NAMES:
            console.print(text(f"{what}  and {len(names) - _MAX_NAMES:,} more"))
    verdict = report.action if report.is_current else "not what is there"
    if report.action == "checked" and report.is_current:
        verdict = "up to date"
    rows = [
        ("data", report.url),
        ("index", report.index),
        ("state", f"{verdict}, {format_bytes(report.index_bytes)}"),
        ("format", report.format),
        ("files", f"{report.num_files:,} ({format_bytes(report.num_bytes)})"),
        ("rows", f"{report.num_rows:,}"),
        ("units", f"{report.num_units:,}"),
        ("a unit", f"{_most(report.unit_rows)} rows, {_most_bytes(report.unit_bytes)} decoded"),
    ]
    rows += [(what, f"{len(names):,} files") for what, names in changes if names]
    rows += [("advice", advice) for advice in report.advice]
    console.print(facts(rows))


def print_cache(report: CacheReport) -> None:
    """Print what `cache` found, and what of it is gone."""
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("of", "what", "size", "used", "folder"):
        table.add_column(name, justify="right" if name == "size" else "left", overflow="fold")
    now = time.time()
    for entry in report.entries:
        used = "now" if entry.in_use else _days(now - entry.last_used)
        if entry.removed_bytes:
            used += ", removed"
        table.add_row(
            text(", ".join(entry.sources) or "-"),
            text(entry.what),
            text(format_bytes(entry.num_bytes)),
            text(used),
            text(os.path.relpath(entry.folder, report.folder)),
        )
    if report.entries:
        console.print(table)
    removed = f", {format_bytes(report.removed_bytes)} removed" if report.removed_bytes else ""
    console.print(text(f"{report.folder}: {format_bytes(report.num_bytes)}{removed}"))


def _days(seconds: float) -> str:
    days = int(max(0.0, seconds) // 86_400)
    return "today" if not days else f"{count_of(days, 'day')} ago"


def _most(spread: Spread) -> str:
    return f"{spread.median:,} (at most {spread.max:,})"


def _most_bytes(spread: Spread) -> str:
    return f"about {format_bytes(spread.median)} (at most {format_bytes(spread.max)})"
