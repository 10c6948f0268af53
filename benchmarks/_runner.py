"""Runs contenders in turns, each in a process of its own, and keeps every figure.

How it measures:

- Each contender prepares its data before anything is timed, in a process that lives for the case.
- One round is one run of each contender, so that a machine that slows down or speeds up does so for
  all of them. The order is shuffled for each round, from a fixed seed: whoever comes after a run
  that has just freed gigabytes finds memory that is cheap to touch, and that must not always be
  the same. The first round warms up and is not counted.
- Before each timed run the previous output is removed and everything dirty is written to disk.
- After the warm-up each contender counts the samples in its own output; a wrong count is a failure.
- Files that a contender left in the page cache are synced after its run, timed apart.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from _process import ContenderError, ContenderProcess, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _spec import Case, Contender, Task

__all__ = ["Entry", "Settings", "run_case"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How often and where."""

    num_runs: int
    """Counted runs of each contender; one more warms up."""

    work_dir: Path
    """Folder for outputs, on the disk that is to be measured; emptied of them as runs end."""

    log_dir: Path
    """Folder that gets one file per contender's process."""

    say: Callable[[str], None]
    """Called with a line of progress."""

    deadline_seconds: float = 900.0
    """For a preparation and for a run."""


@dataclass(slots=True)
class Entry:
    """What one contender achieved in one case."""

    contender: Contender
    versions: dict[str, str] = field(default_factory=dict)
    payload_bytes: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    """Why there are no runs, or fewer."""


def run_case(case: Case, settings: Settings) -> list[Entry]:
    """Measure all contenders of `case`; one that fails is left out of the following rounds."""
    entries = [Entry(contender) for contender in case.contenders]
    with contextlib.ExitStack() as stack:
        processes = {
            entry.contender.name: process
            for number, entry in enumerate(entries)
            if (process := _start(entry, case.task, number, settings, stack)) is not None
        }
        for number in range(-1, settings.num_runs):
            for entry in order_of_round(entries, number):
                if entry.error is None:
                    _run_once(entry, processes[entry.contender.name], case.task, number, settings)
    return entries


def order_of_round(entries: list[Entry], number: int) -> list[Entry]:
    """Return the entries in the order of round `number`, the same in every call."""
    return random.Random(number).sample(entries, len(entries))


def _start(
    entry: Entry, task: Task, number: int, settings: Settings, stack: contextlib.ExitStack
) -> ContenderProcess | None:
    contender = entry.contender
    python = interpreter(contender.environment)
    if not python.exists():
        entry.error = f"{python} is missing; run benchmarks/setup_peers.sh"
        return None
    settings.log_dir.mkdir(parents=True, exist_ok=True)
    log = settings.log_dir / f"{task.work}-{task.name.replace(':', '')}-{number}.log"
    process = stack.enter_context(ContenderProcess(contender, log))
    request = {
        "op": "prepare",
        "module": contender.module,
        "options": dict(contender.options),
        "task": task.to_json(),
    }
    try:
        answer = process.ask(request, deadline_seconds=settings.deadline_seconds)
    except ContenderError as error:
        entry.error = str(error)
        settings.say(f"  {contender.name}: {error}")
        return None
    entry.versions = answer["versions"]
    entry.payload_bytes = answer["payload_bytes"]
    return process


def _run_once(
    entry: Entry, process: ContenderProcess, task: Task, number: int, settings: Settings
) -> None:
    """One run; `number` is -1 for the one that warms up."""
    out = settings.work_dir / "out"
    warm_up = number < 0
    os.sync()
    try:
        figures = process.ask(
            {"op": "run", "out": str(out), "count": warm_up},
            deadline_seconds=settings.deadline_seconds,
        )
        if warm_up and figures["num_samples"] != task.num_samples:
            count = figures["num_samples"]
            msg = f"its output holds {count} samples where {task.num_samples} were written"
            raise ContenderError(msg)  # noqa: TRY301 - reported as any other failure
    except ContenderError as error:
        entry.error = str(error)
        settings.say(f"  {entry.contender.name}: {error}")
        return
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if not warm_up:
        entry.runs.append(figures)
        rate = task.num_samples / figures["seconds"]
        settings.say(f"  {number + 1}. {entry.contender.name}: {rate:,.0f}/s")
