"""What is compared: tasks, contenders and scenarios, as plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Case", "Contender", "Metric", "Outcome", "Scenario", "Task", "Timed"]

Metric = Literal["written", "read", "fetched", "seconds"]
"""What a scenario's tables show: rates of writing, rates of reading, rates of reading through a
server, or seconds until something."""


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work, the same for all who do it."""

    work: str
    """Which data: a name that `_work.make_work` knows."""

    num_samples: int
    """How many samples of it."""

    compression: str | None = None
    """None for raw files, else `zstd:LEVEL`."""

    seed: int = 17
    """Equal seeds give equal data in every process."""

    num_workers: int = 0
    """Processes that read; 0 for none beside the one that asks."""

    least_seconds: float = 0.0
    """Reading goes through the data again until this much time has passed."""

    most_seconds: float = 10.0
    """Reading stops after this, however far it came; the rate is that of what was read."""

    latency_ms: int | None = None
    """How long the server waits before each answer; None where there is none."""

    @property
    def name(self) -> str:
        """The compression, or `raw`; how many processes read; how late the server is."""
        workers = f", {self.num_workers} workers" if self.num_workers else ""
        latency = "" if self.latency_ms is None else f", {self.latency_ms} ms"
        return (self.compression or "raw") + workers + latency

    @property
    def zstd_level(self) -> int | None:
        """The number in `zstd:LEVEL`, None for raw files."""
        return None if self.compression is None else int(self.compression.removeprefix("zstd:"))

    def to_json(self) -> dict[str, Any]:
        """A dict that `Task(**...)` turns back into an equal task."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a task, in a process and an environment of its own."""

    name: str
    """As it stands in the tables."""

    module: str
    """The module under `contenders/` whose `prepare(task, options, shared)` gives a `Timed`.

    `shared` is a folder that the contenders of a scenario have in common and that outlives their
    processes: what one left there by name, the next need not make again.
    """

    environment: Literal["ours", "peers", "tables"]
    """Whose Python runs it."""

    note: str
    """How it is set up, as far as that bears on the figures."""

    options: Mapping[str, str | int] = field(default_factory=dict)
    """For the module's `prepare`."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task and those who do it in turns."""

    task: Task
    contenders: tuple[Contender, ...]
    fresh: bool = False
    """Whether each run gets a process of its own, as what is done once in a process needs."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cases that share a table heading and a result file."""

    name: str
    title: str
    text: str
    """What is done, in a paragraph for the reader of the tables."""

    cases: tuple[Case, ...]
    quick_cases: tuple[Case, ...]
    """The same at a size that is done in seconds and says nothing about speed."""

    baselines: tuple[str, ...]
    """Contenders that all are compared with, one ratio column for each."""

    metric: Metric = "written"
    """Which columns the tables have."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run says of itself where the clock around it and the task do not say it."""

    num_samples: int | None = None
    """How many samples were read, None for the task's number."""

    seconds: float | None = None
    """How long it took without what had to follow, None for the whole call."""

    requests: int | None = None
    """How many requests reached the server, if there was one."""

    fetched_bytes: int | None = None
    """How many bytes it sent."""


class Timed(Protocol):
    """What a contender's module prepares: everything but the work itself is done already."""

    distributions: tuple[str, ...]
    """Installed packages whose versions belong in the record."""

    payload_bytes: int
    """Bytes of the samples as the caller holds them, for MB/s."""

    def run(self, out: Path) -> Outcome | None:
        """Do the work, writing below `out`, which does not exist yet. This alone is timed.

        None stands for an outcome with nothing to add.
        """

    def count(self, out: Path) -> int | None:
        """Say how many samples the finished output holds, by the contender's own account.

        Readers, which leave no output, look at what they read instead, and raise if it is wrong.
        """
