"""What is compared: tasks, contenders and scenarios, as plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Case", "Contender", "Scenario", "Task", "Timed"]


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

    @property
    def name(self) -> str:
        """The compression, or `raw`: what tells the tasks of a scenario apart."""
        return self.compression or "raw"

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
    """The module under `contenders/` whose `prepare(task, options)` gives a `Timed`."""

    environment: Literal["ours", "peers"]
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

    baseline: str
    """The contender whose rate is 1 in the ratio column."""


class Timed(Protocol):
    """What a contender's module prepares: everything but the work itself is done already."""

    distributions: tuple[str, ...]
    """Installed packages whose versions belong in the record."""

    payload_bytes: int
    """Bytes of the samples as the caller holds them, for MB/s."""

    def run(self, out: Path) -> None:
        """Do the work, writing below `out`, which does not exist yet. This alone is timed."""

    def count(self, out: Path) -> int:
        """Say how many samples the finished output holds, by the contender's own account."""
