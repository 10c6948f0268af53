"""Runs contenders in turns, each in a process of its own, and keeps every figure.

How it measures:

- Each contender prepares its data before anything is timed, in a process that lives for the case,
  or for one run where the case says so.
- One round is one run of each contender, so that a machine that slows down or speeds up does so for
  all of them. The order is shuffled for each round, from a fixed seed: whoever comes after a run
  that has just freed gigabytes finds memory that is cheap to touch, and that must not always be
  the same. The first round warms up and is not counted.
- Before each timed run the previous output is removed and everything dirty is written to disk.
- After the warm-up each contender counts the samples in its own output, or looks at what it read
  sample by sample; what is wrong is a failure.
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

_FILE_NAME = str.maketrans(" ", "-", ":,()[]`")
"""Makes the name of a contender fit for a file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How often and where."""

    num_runs: int
    """Counted runs of each contender; one more warms up."""

    work_dir: Path
    """Folder for data and outputs, on the disk that is to be measured; outputs go as runs end."""

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
        living: dict[str, ContenderProcess] = {}
        if not case.fresh:
            for entry in entries:
                if (process := _start(entry, case.task, settings, stack)) is not None:
                    living[entry.contender.name] = process
        for number in range(-1, settings.num_runs):
            for entry in order_of_round(entries, number):
                if entry.error is not None:
                    continue
                with contextlib.ExitStack() as run:
                    process = living.get(entry.contender.name)
                    process = process or _start(entry, case.task, settings, run)
                    if process is not None:
                        _run_once(entry, process, case, number, settings)
    return entries


def order_of_round(entries: list[Entry], number: int) -> list[Entry]:
    """Return the entries in the order of round `number`, the same in every call."""
    return random.Random(number).sample(entries, len(entries))


def _start(
    entry: Entry, task: Task, settings: Settings, stack: contextlib.ExitStack
) -> ContenderProcess | None:
    contender = entry.contender
    python = interpreter(contender.environment)
    if not python.exists():
        entry.error = f"{python} is missing; run benchmarks/setup_peers.sh"
        return None
    settings.log_dir.mkdir(parents=True, exist_ok=True)
    shared = settings.work_dir / "shared"
    shared.mkdir(exist_ok=True)
    log = settings.log_dir / f"{task.work}-{task.name}-{contender.name}.log".translate(_FILE_NAME)
    process = stack.enter_context(ContenderProcess(contender, log))
    request = {
        "op": "prepare",
        "module": contender.module,
        "options": dict(contender.options),
        "task": task.to_json(),
        "shared": str(shared),
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
    entry: Entry, process: ContenderProcess, case: Case, number: int, settings: Settings
) -> None:
    """One run; `number` is -1 for the one that warms up."""
    out = settings.work_dir / "out"
    warm_up = number < 0
    task = case.task
    os.sync()
    try:
        figures = process.ask(
            {"op": "run", "out": str(out), "count": warm_up or case.fresh},
            deadline_seconds=settings.deadline_seconds,
        )
        count = figures["num_samples"]
        if count is not None and count != task.num_samples:
            msg = f"its output holds {count} samples where {task.num_samples} were written"
            raise ContenderError(msg)  # noqa: TRY301 - reported as any other failure
    except ContenderError as error:
        entry.error = str(error)
        settings.say(f"  {entry.contender.name}: {error}")
        return
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if not warm_up:
        figures["num_done"] = figures["num_done"] or task.num_samples
        entry.runs.append(figures)
        seconds = figures["seconds"]
        rate = figures["num_done"] / seconds
        settings.say(f"  {number + 1}. {entry.contender.name}: {seconds:.3f} s, {rate:,.0f}/s")
