"""How fast samples come out of a finished data set that lies in local files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from _spec import Case, Contender, Scenario, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LITDATA", "OURS", "REFERENCE", "SCENARIOS", "SIZES"]

OURS = "streaming-core"
REFERENCE = "mosaicml-streaming"
LITDATA = "litData"
_CEILING = "ceiling"

SIZES = {"ints": (1_000_000, 20_000), "tokens": (100_000, 1_000), "blobs": (10_000, 600)}
"""Samples of each kind of data, at full size and to see whether it runs."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A way of reading, and what each contender does for it."""

    name: str
    title: str
    text: str
    notes: Mapping[str, str]
    """By contender."""

    num_workers: int = 0
    least_seconds: float = 1.0
    most_seconds: float = 8.0

    def scenario(self) -> Scenario:
        """Compare all contenders on all data."""
        tasks = [
            Task(
                work,
                num_samples,
                num_workers=self.num_workers,
                least_seconds=self.least_seconds,
                most_seconds=self.most_seconds,
            )
            for work, (num_samples, _) in SIZES.items()
        ]
        quick = [
            replace(task, num_samples=num, least_seconds=0.0)
            for task, (_, num) in zip(tasks, SIZES.values(), strict=True)
        ]
        contenders = tuple(self._contender(name) for name in self.notes)
        return Scenario(
            name=f"read-{self.name}",
            title=self.title,
            text=self.text,
            cases=tuple(Case(task, contenders) for task in tasks),
            quick_cases=tuple(Case(task, contenders) for task in quick),
            baselines=(REFERENCE, LITDATA, _CEILING),
            metric="read",
        )

    def _contender(self, name: str) -> Contender:
        method = {"random": "get"}.get(self.name, self.name)
        return Contender(
            name, _MODULES[name], _ENVIRONMENTS[name], self.notes[name], {"method": method}
        )


_MODULES = {
    OURS: "read_ours",
    REFERENCE: "read_reference",
    LITDATA: "read_lit",
    _CEILING: "read_ceiling",
}
_ENVIRONMENTS: dict[str, Literal["ours", "peers"]] = {
    OURS: "ours",
    REFERENCE: "peers",
    LITDATA: "peers",
    _CEILING: "peers",
}
_AGAIN = (
    "The data is in the page cache, and opening it is not timed. Who is quick reads it again until "
    "a second is full; who is slow is stopped, and the rate is that of what came."
)
_SHUFFLED = "In batches of 4,096 small samples or 256 larger ones, from shards of 1 or 64 MiB. "

_WAYS = (
    _Way(
        "samples",
        "Reading samples in order",
        f"A loop over the data set in one process, sample by sample, in order. {_AGAIN}",
        {
            OURS: "`for sample in dataset`",
            REFERENCE: "`for sample in dataset`, the same shards",
            LITDATA: "`for sample in dataset`; `optimize` wrote chunks as large as the shards",
            _CEILING: (
                "a loop that makes the same dicts from one plain file: struct's `iter_unpack`, one "
                "view of an array for each row, one copy for each `bytes`"
            ),
        },
    ),
    _Way(
        "batches",
        "Reading shuffled batches in process",
        f"{_SHUFFLED}{_AGAIN}",
        {
            OURS: '`dataset.batches(batch_format="numpy")`',
            REFERENCE: "its `StreamingDataLoader` without workers: it has no batches of its own",
            LITDATA: (
                "its `StreamingDataLoader` without workers; shuffles within chunks, and chunks"
            ),
            _CEILING: (
                "`np.take` of each column from a mapped plain file, by numbers permuted before; a "
                "copy for each `bytes`"
            ),
        },
    ),
    _Way(
        "loader",
        "Reading shuffled batches from two worker processes",
        f"{_SHUFFLED}Workers are started once a run, and stay for its epochs. {_AGAIN}",
        {
            OURS: "`StreamingDataLoader`, torch tensors or lists of `bytes`",
            REFERENCE: "its `StreamingDataLoader`",
            LITDATA: "its `StreamingDataLoader`",
            _CEILING: (
                "torch's `DataLoader` moving copies of one batch of the same shape; nothing is "
                "read. Whoever moves batches otherwise may be faster"
            ),
        },
        num_workers=2,
        least_seconds=2.0,
        # Left in the midst of an epoch, litData's workers make the next loader wait for seconds.
        most_seconds=30.0,
    ),
    _Way(
        "random",
        "Reading single samples by random numbers",
        f"`dataset[i]` in one process, numbers drawn evenly. {_AGAIN}",
        {
            OURS: "`dataset[i]`",
            REFERENCE: "`dataset[i]`",
            LITDATA: "`dataset[i]`",
            _CEILING: (
                "the same dicts from a mapped plain file: struct's `unpack_from`, a view, a copy "
                "for each `bytes`"
            ),
        },
    ),
    _Way(
        "take",
        "Reading a thousand samples at a time by random numbers",
        f"In one process, numbers drawn evenly. {_AGAIN}",
        {
            OURS: "`dataset.take(numbers)`: numpy columns",
            REFERENCE: "`dataset[numbers]`: a list of samples",
            LITDATA: "`dataset[i]` in a loop",
            _CEILING: "`np.take` from mapped plain files; a copy for each `bytes`",
        },
    ),
)

SCENARIOS = tuple(way.scenario() for way in _WAYS)
