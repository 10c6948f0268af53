"""What loading takes and what holds it up: figures of one iteration, and what they say."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Clock", "Figures", "diagnosed", "log_end", "metrics_of"]

_log = logging.getLogger("streaming_core.reader")

_LITTLE_WAIT: Final = 0.1
"""A trainer that waits for a smaller part of its time is not held up by loading."""
_FEW_BATCHES: Final = 4
"""Fewer say nothing of how it goes on."""
_NS: Final = 1e-9

_HINTS: Final = {
    "trainer": "Loading keeps up: what to make faster is the training step.",
    "network": (
        "Most of it was bytes on their way: choose fewer columns, give more num_workers or a "
        "larger predownload, keep the cache (local=, cache_limit=) on a fast disk for later "
        "epochs, or train nearer to the data."
    ),
    "disk": (
        "Most of it was reading local files and writing what is made of them: choose fewer "
        "columns or a larger predownload, and keep data and cache (local=) on a fast disk."
    ),
    "busy": (
        "Most of it was the store asking for fewer requests: use fewer ranks or workers at once, "
        "index the data (streaming-core index), or spread it over more prefixes."
    ),
    "source": (
        "Most of it was decoding files that nobody converted, once per node: later epochs find "
        "them decoded if cache_limit leaves room; fewer columns, more num_workers, or converting "
        "them with MDSWriter make the first one faster."
    ),
    "order": (
        "Most of it was making the order of the epoch: shuffle_algo='windowed' begins at once "
        "whatever the size of the data."
    ),
    "decode": (
        "Most of it was taking samples out of shards: give more num_workers, fewer columns, or a "
        "smaller shuffle_block_size."
    ),
    "format": (
        "Most of it was making batches of columns: give more num_workers, batch_format='numpy' "
        "or 'arrow', or ragged='offsets' where values have different lengths."
    ),
    "transform": (
        "Most of it was in transforms and collate_fn: give more num_workers, do it for whole "
        "batches (batch_transform), or do it once and save the result with MDSWriter."
    ),
    "other": (
        "Most of it is none of what is counted: too few processors for num_workers, the way of "
        "batches to the trainer, or code of yours in the data set or collate_fn."
    ),
    "start": "Too few batches came to say what holds loading up.",
}
"""What to do, by what holds loading up."""


class Clock:
    """What a trainer has waited for in one iteration; the counts of its workers beside it.

    The trainer's thread writes, any may read.

    Example:
        >>> clock = Clock()
        >>> clock.asked(ready=0)
        >>> clock.given(8)
        >>> metrics_of(clock)["samples"]
        8
    """

    __slots__ = (
        "_asked",
        "_stats",
        "batches",
        "before",
        "began",
        "first_ns",
        "is_local",
        "last",
        "ready",
        "samples",
        "wait_ns",
        "workers",
    )

    def __init__(
        self,
        stats: Callable[[], Mapping[str, int]] = dict,
        workers: int = 0,
        *,
        is_local: bool = False,
    ) -> None:
        """Begin now; `stats` tells what all `workers` together have counted since ever."""
        self._stats = stats
        self.is_local = is_local
        """Whether all data lies in folders of this machine."""
        self.workers = max(1, workers)
        """Processes that make batches."""
        self.before = dict(stats())
        """What they had counted when the iteration began."""
        self.began = self.last = self._asked = time.perf_counter_ns()
        """When the iteration began; when the last batch was given."""
        self.samples = self.batches = 0
        self.wait_ns = 0
        """Nanoseconds between asking for a batch and being given it, the first one left out."""
        self.first_ns = 0
        """Nanoseconds from the beginning to the first batch."""
        self.ready = 0
        """Of all batches that were asked for, how many lay ready at that moment, summed up."""

    def asked(self, ready: int) -> None:
        """Note that the trainer asks for a batch, and how many lie ready."""
        self._asked = time.perf_counter_ns()
        self.ready += ready

    def given(self, samples: int) -> None:
        """Note that it is given one."""
        self.last = time.perf_counter_ns()
        if self.batches:
            self.wait_ns += self.last - self._asked
        else:
            self.first_ns = self.last - self.began
        self.batches += 1
        self.samples += samples

    def counted(self) -> dict[str, int]:
        """Return what the workers have counted since the iteration began."""
        return {name: count - self.before.get(name, 0) for name, count in self._stats().items()}


class Figures(NamedTuple):
    """Seconds, by what was done: of the trainer, of its workers, of the threads that fetch."""

    steady: float
    """Since the first batch was given."""
    wait: float
    """Of those, the trainer's for batches."""
    shards: float
    """The workers', for shards that were not there."""
    order: float
    decode: float
    format: float
    transform: float
    fill: float
    """The threads', to bring shards."""
    make: float
    """Of these, to decode other formats."""
    pace: float
    """Of these, because the store was busy."""


def metrics_of(clock: Clock) -> dict[str, Any]:
    """Return all figures of an iteration by name: numbers, and `bound` and `hint` as texts.

    Seconds of workers are summed up over all of them, and so are those of their threads, which
    fetch and decode while the workers do something else.
    """
    counts = clock.counted()

    def seconds(name: str) -> float:
        return counts.get(f"{name}_ns", 0) * _NS

    total = (clock.last - clock.began) * _NS
    figures = Figures(
        steady=max(0.0, total - clock.first_ns * _NS),
        wait=clock.wait_ns * _NS,
        shards=seconds("wait_shard"),
        order=seconds("wait_order"),
        decode=seconds("decode"),
        format=seconds("format"),
        transform=seconds("transform"),
        fill=seconds("fill"),
        make=seconds("make"),
        pace=seconds("wait_pace"),
    )
    opened = counts.get("shards_opened", 0)
    fetched = counts.get("shards_fetched", 0)
    bound = diagnosed(clock.batches, clock.workers, figures, is_local=clock.is_local)
    share = figures.wait / figures.steady if figures.steady else 0.0
    return {
        "samples": clock.samples,
        "batches": clock.batches,
        "seconds": total,
        "samples_per_second": clock.samples / total if total else 0.0,
        "first_batch_seconds": clock.first_ns * _NS,
        "wait_seconds": figures.wait,
        "wait_share": share,
        "ready_batches": clock.ready / max(1, clock.batches),
        "worker_wait_shard_seconds": figures.shards,
        "worker_wait_order_seconds": figures.order,
        "worker_decode_seconds": figures.decode,
        "worker_format_seconds": figures.format,
        "worker_transform_seconds": figures.transform,
        "thread_fetch_seconds": max(0.0, figures.fill - figures.make),
        "thread_make_seconds": figures.make,
        "thread_pace_seconds": figures.pace,
        "bytes_on_wire": counts.get("bytes_fetched", 0) + counts.get("range_bytes", 0),
        "bytes_used": counts.get("bytes_used", 0),
        "shards_opened": opened,
        "shards_fetched": fetched,
        "cache_hit_share": 1 - fetched / max(1, opened, fetched),
        "range_requests": counts.get("range_requests", 0),
        "retries": counts.get("retries", 0),
        "refusals": counts.get("refusals", 0),
        "bound": bound,
        "hint": (
            f"After the first batch, which took {clock.first_ns * _NS:.1f} s, the trainer waited "
            f"for batches {share:.0%} of its time. {_HINTS[bound]}"
        ),
    }


def log_end(clock: Clock) -> None:
    """Say in the log, level INFO, what an iteration took; the record has all `metrics`."""
    if not _log.isEnabledFor(logging.INFO):
        return
    found = metrics_of(clock)
    told = (found["samples"], found["seconds"], found["samples_per_second"], found["hint"])
    _log.info("%d samples in %.1f s (%.0f a second). %s", *told, extra={"metrics": found})


def diagnosed(batches: int, workers: int, figures: Figures, *, is_local: bool = False) -> str:
    """Return what holds loading up: a key of the hints.

    1. Too few batches: nothing can be said. 2. The trainer hardly waits: it is the trainer. 3. Else
    it is what the workers spend most time on, or what they do that nobody counts; where they wait
    for shards, what the threads that bring these do; what of that is neither decoding nor waiting
    for the store's permission is bytes on their way, over a disk if all data `is_local`.

    Example:
        >>> diagnosed(100, 1, Figures(10, 0.1, 0, 0, 1, 0, 0, 0, 0, 0))
        'trainer'
        >>> diagnosed(100, 1, Figures(10, 9, 8, 0, 1, 0, 0, 20, 5, 0))
        'network'
    """
    if batches < _FEW_BATCHES:
        return "start"
    if figures.wait < _LITTLE_WAIT * figures.steady:
        return "trainer"
    spent = {
        "shards": figures.shards,
        "order": figures.order,
        "decode": figures.decode,
        "format": figures.format,
        "transform": figures.transform,
    }
    # Workers that wait for the trainer do nothing then, which is not what held it up.
    spent["other"] = workers * figures.wait - sum(spent.values())
    most = max(spent, key=spent.__getitem__)
    if most != "shards":
        return most
    bringing = {
        "source": figures.make,
        "busy": figures.pace,
        "disk" if is_local else "network": figures.fill - figures.make - figures.pace,
    }
    return max(bringing, key=bringing.__getitem__)
