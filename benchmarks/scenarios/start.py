"""How long until the first batch, at first and after a restart, and until an import is done.

Each run has a process of its own: what was computed or imported once would not be timed again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from _spec import Case, Contender, Scenario, Task
from scenarios.read import LITDATA, OURS, REFERENCE, SIZES

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["SCENARIOS"]

_LOADER = "constructed with its own loader, shuffled"


def _first() -> Scenario:
    contenders = (
        Contender(OURS, "read_ours", "ours", f"{_LOADER} by py1e", {"method": "first"}),
        Contender(
            f"{OURS}, windowed",
            "read_ours",
            "ours",
            f"{_LOADER} by `windowed`",
            {"method": "first", "shuffle_algo": "windowed"},
        ),
        Contender(REFERENCE, "read_reference", "peers", f"{_LOADER} by py1e", {"method": "first"}),
        Contender(LITDATA, "read_lit", "peers", f"{_LOADER}", {"method": "first"}),
    )
    full, quick = SIZES["tokens"]
    tasks = [Task("tokens", full, num_workers=num_workers) for num_workers in (0, 2)]
    return Scenario(
        name="read-first",
        title="The first shuffled batch",
        text=(
            "Seconds from constructing data set and loader until the first batch of 256 is there, "
            "in a new process that has imported all it needs; files in the page cache."
        ),
        cases=tuple(Case(task, contenders, fresh=True) for task in tasks),
        quick_cases=tuple(
            Case(replace(task, num_samples=quick), contenders, fresh=True) for task in tasks
        ),
        baselines=(REFERENCE, LITDATA),
        metric="seconds",
    )


def _resume() -> Scenario:
    contenders = (
        Contender(
            OURS,
            "read_ours",
            "ours",
            "py1e; on a machine that has not seen this epoch's order yet",
            {"method": "resume"},
        ),
        Contender(
            f"{OURS}, order kept",
            "read_ours",
            "ours",
            "py1e; the order file of the interrupted process is still there",
            {"method": "resume", "order": "kept"},
        ),
        Contender(
            f"{OURS}, windowed",
            "read_ours",
            "ours",
            "`windowed`, which computes only the part of the order that is read next",
            {"method": "resume", "shuffle_algo": "windowed"},
        ),
        Contender(REFERENCE, "read_reference", "peers", "py1e", {"method": "resume"}),
    )
    return Scenario(
        name="read-resume",
        title="Going on in the middle of an epoch",
        text=(
            "Seconds from constructing data set and loader, through loading a checkpoint taken "
            "after half of the samples, until the next batch of 256 is there; no workers, in a new "
            "process that has imported all it needs. Shards of 1 MiB in the page cache."
        ),
        cases=(Case(Task("counts", 10_000_000), contenders, fresh=True),),
        quick_cases=(Case(Task("counts", 100_000), contenders, fresh=True),),
        baselines=(REFERENCE,),
        metric="seconds",
    )


def _imports() -> Scenario:
    case = Case(
        Task("imports", 1),
        (
            _import("streaming_core", "", "streaming-core", "ours"),
            _import("streaming_core", "MDSWriter StreamingDataset", "streaming-core", "ours"),
            _import("streaming_core", "StreamingDataLoader", "streaming-core", "ours"),
            _import("streaming", "StreamingDataset", "mosaicml-streaming", "peers"),
            _import("litdata", "StreamingDataset", "litdata", "peers"),
            _import("numpy", "", "numpy", "ours"),
            _import("torch", "", "torch", "peers"),
        ),
        fresh=True,
    )
    return Scenario(
        name="import",
        title="Importing",
        text="Seconds for the statement in an interpreter that has imported nothing of it yet.",
        cases=(case,),
        quick_cases=(case,),
        baselines=("from streaming import StreamingDataset",),
        metric="seconds",
    )


def _import(
    module: str, names: str, distribution: str, environment: Literal["ours", "peers"]
) -> Contender:
    wanted = ", ".join(names.split())
    return Contender(
        f"from {module} import {wanted}" if names else f"import {module}",
        "importing",
        environment,
        "its compiled files in the page cache",
        {"module": module, "names": names, "distribution": distribution},
    )


SCENARIOS = (_first(), _resume(), _imports())
