"""What readers are asked to do, whatever library they read with.

A contender's module makes a `Source`; `timed` turns it into what the worker runs, by the option
`method`:

- `samples`: one by one, in order, in this process
- `batches`: shuffled, in batches, in this process
- `loader`: the same from the task's workers
- `get`: single samples by random numbers
- `take`: 1,000 samples at a time by random numbers
- `first`: from nothing to the first shuffled batch
- `resume`: from nothing to the first shuffled batch after half an epoch

Passes through the data begin again until `task.least_seconds` have gone by and stop in the midst of
the data after `task.most_seconds`. Each pass has to give as many samples as there are. After the
warm-up the same way of reading is gone through once more and each value is compared.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from _spec import Outcome
from _truth import keys_of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from _spec import Task, Timed
    from _truth import Truth
    from numpy.typing import NDArray

__all__ = ["BATCH_SIZES", "SHUFFLE_SEED", "Epochs", "Passes", "Source", "checkpoint", "timed"]

BATCH_SIZES = {"counts": 256, "ints": 4096, "tokens": 256, "blobs": 256, "rows": 1024}
"""Samples of a batch, by the name of the work."""

SHUFFLE_SEED = 9176

_TAKEN_AT_ONCE = 1000
_NUM_PICKS = 200_000
_SAMPLES_BETWEEN_CLOCKS = 256


class Source(Protocol):
    """A finished data set, seen through one library."""

    @property
    def distributions(self) -> tuple[str, ...]:
        """Installed packages whose versions belong in the record."""

    def samples(self) -> Iterable[dict[str, Any]]:
        """Return something that gives all samples in order, each time that it is iterated."""

    def batches(self, num_workers: int) -> Iterable[Mapping[str, Any]]:
        """Return something that gives shuffled batches of columns, an epoch per iteration.

        Workers stay from one iteration to the next, and end when the object is gone.
        """

    def get(self, number: int) -> dict[str, Any]:
        """Return one sample."""

    def take(self, numbers: list[int]) -> Mapping[str, Any] | Sequence[dict[str, Any]]:
        """Return many samples, as columns or one by one, whichever is quicker here."""

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        """Open the data set anew and shuffled, go to `state` if there is one; return the loader."""


class Epochs:
    """Begins an epoch whenever it is iterated, as a loader does."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        """Begin."""
        return self._begin()


def checkpoint(num_samples: int) -> dict[str, Any]:
    """Return the state in the middle of the first epoch, in the format of MDS's own library."""
    return {
        "epoch": 0,
        "sample_in_epoch": num_samples // 2,
        "num_canonical_nodes": 1,
        "shuffle_seed": SHUFFLE_SEED,
        "initial_physical_nodes": 1,
    }


def timed(task: Task, method: str, source: Source, truth: Truth) -> Timed:
    """Return what times `method` of `source` and compares what it read with `truth`."""
    makers: dict[str, Callable[[], Timed]] = {
        "samples": lambda: Passes(
            source.distributions, truth, task, source.samples, by_sample=True
        ),
        "batches": lambda: Passes(source.distributions, truth, task, lambda: source.batches(0)),
        "loader": lambda: Passes(
            source.distributions, truth, task, lambda: source.batches(task.num_workers)
        ),
        "get": lambda: _Picks(source, truth, task, at_once=1),
        "take": lambda: _Picks(source, truth, task, at_once=_TAKEN_AT_ONCE),
        "first": lambda: _First(source, truth, task, None),
        "resume": lambda: _First(source, truth, task, checkpoint(task.num_samples)),
    }
    return makers[method]()


def _rows(batch: Any) -> int:  # noqa: ANN401 - a dict of columns, or an Arrow table
    return int(batch.num_rows) if hasattr(batch, "num_rows") else len(next(iter(batch.values())))


class _Reader:
    def __init__(self, distributions: tuple[str, ...], truth: Truth, task: Task) -> None:
        self.distributions = distributions
        self.payload_bytes = truth.payload_bytes
        self._truth = truth
        self._task = task


class Passes(_Reader):
    """Goes through the data, again and again: by sample in order, or by shuffled batch."""

    def __init__(
        self,
        distributions: tuple[str, ...],
        truth: Truth,
        task: Task,
        open_data: Callable[[], Iterable[Any]],
        *,
        by_sample: bool = False,
    ) -> None:
        super().__init__(distributions, truth, task)
        self._open = open_data
        self._by_sample = by_sample

    def run(self, out: Path) -> Outcome:
        del out
        start = time.perf_counter()
        data = self._open()
        most = start + self._task.most_seconds
        num_read = 0
        while True:
            num_passed = self._pass(data, most)
            now = time.perf_counter()
            num_read += num_passed
            if now < most and num_passed != self._task.num_samples:
                msg = f"a pass gave {num_passed} samples where {self._task.num_samples} lie"
                raise ValueError(msg)
            if now - start >= min(self._task.least_seconds, self._task.most_seconds):
                return Outcome(num_read, now - start)

    def _pass(self, data: Iterable[Any], most: float) -> int:
        """Go through the data until its end or the clock's; return how many samples came."""
        if self._by_sample:
            return _count_samples(data, most)
        num_read = 0
        for batch in data:
            num_read += _rows(batch)
            if time.perf_counter() >= most:
                break
        return num_read

    def count(self, out: Path) -> None:
        """Read once more, and compare."""
        del out
        most = time.perf_counter() + self._task.most_seconds
        parts: list[NDArray[np.int64]] = []
        late = False
        data = self._open()
        for batch in _as_batches(data) if self._by_sample else data:
            parts.append(keys_of_batch(self._task.work, batch))
            if late := time.perf_counter() >= most:
                break
        self._compare(np.concatenate(parts), whole=not late)

    def _compare(self, keys: NDArray[np.int64], *, whole: bool) -> None:
        expected = self._truth.keys
        if self._by_sample:
            right = np.array_equal(keys, expected[: None if whole else len(keys)])
        elif whole:
            right = np.array_equal(np.sort(keys), np.sort(expected))
        else:
            right = not Counter(keys.tolist()) - Counter(expected.tolist())
        if not right:
            msg = f"{len(keys)} samples came, and they are not those that were written"
            raise ValueError(msg)


def _as_batches(samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, list[Any]]]:
    iterator = enumerate(samples)
    while part := [sample for _, sample in itertools.islice(iterator, _SAMPLES_BETWEEN_CLOCKS)]:
        yield {name: [sample[name] for sample in part] for name in part[0]}


def _count_samples(samples: Iterable[Any], most: float) -> int:
    """Take samples as fast as a loop in Python can, looking at the clock now and then."""
    # Parts are taken from the enumeration: some libraries begin anew whenever `iter` meets them.
    numbered = enumerate(samples, 1)
    num_read = 0
    while last := deque(itertools.islice(numbered, _SAMPLES_BETWEEN_CLOCKS), maxlen=1):
        num_read = last[0][0]
        if time.perf_counter() >= most:
            break
    return num_read


class _Picks(_Reader):
    """Fetches samples by random numbers, the same in each process."""

    def __init__(self, source: Source, truth: Truth, task: Task, *, at_once: int) -> None:
        super().__init__(source.distributions, truth, task)
        self._source = source
        picks = np.random.Generator(np.random.PCG64(task.seed)).integers(
            0, task.num_samples, _NUM_PICKS
        )
        self._picks: list[int] = picks.tolist()
        self._at_once = at_once

    def run(self, out: Path) -> Outcome:
        del out
        start = time.perf_counter()
        num_read = 0
        while True:
            for first in range(0, len(self._picks), _TAKEN_AT_ONCE):
                numbers = self._picks[first : first + _TAKEN_AT_ONCE]
                self._fetch(numbers)
                num_read += len(numbers)
                seconds = time.perf_counter() - start
                if seconds >= self._task.least_seconds:
                    return Outcome(num_read, seconds)

    def _fetch(self, numbers: list[int]) -> None:
        if self._at_once > 1:
            self._source.take(numbers)
            return
        get = self._source.get
        for number in numbers:
            get(number)

    def count(self, out: Path) -> None:
        """Fetch some once more, and compare."""
        del out
        numbers = self._picks[:_TAKEN_AT_ONCE]
        source = self._source
        taken = source.take(numbers) if self._at_once > 1 else [source.get(i) for i in numbers]
        if not np.array_equal(_keys_of_any(self._task.work, taken), self._truth.keys[numbers]):
            msg = "samples came that are not those that were asked for"
            raise ValueError(msg)


def _keys_of_any(work: str, taken: Mapping[str, Any] | Sequence[dict[str, Any]]) -> NDArray[Any]:
    if not isinstance(taken, (list, tuple)):
        return keys_of_batch(work, taken)  # type: ignore[arg-type]
    return keys_of_batch(work, {name: [sample[name] for sample in taken] for name in taken[0]})


class _First(_Reader):
    """Opens a data set and gets one batch; the end of workers is not timed."""

    def __init__(
        self, source: Source, truth: Truth, task: Task, state: dict[str, Any] | None
    ) -> None:
        super().__init__(source.distributions, truth, task)
        self._source = source
        self._state = state
        self._batch: Mapping[str, Any] = {}

    def run(self, out: Path) -> Outcome:
        del out
        start = time.perf_counter()
        loader = self._source.first(self._task.num_workers, self._state)
        iterator = iter(loader)
        self._batch = next(iterator)
        seconds = time.perf_counter() - start
        del loader, iterator
        gc.collect()  # so that workers end, and count among the processor's seconds
        return Outcome(self._task.num_samples, seconds)

    def count(self, out: Path) -> None:
        """Look at the batch that came: whole, of this data, nothing twice, and not in order."""
        del out
        work = self._task.work
        keys = keys_of_batch(work, self._batch)
        wanted = min(BATCH_SIZES[work], self._task.num_samples)
        known = np.isin(keys, self._truth.keys).all() and len(set(keys.tolist())) == wanted
        if len(keys) != wanted or not known:
            msg = (
                f"the first batch has {len(keys)} samples, not {wanted} different ones of the data"
            )
            raise ValueError(msg)
        if np.array_equal(keys, self._truth.keys[: len(keys)]):
            msg = "the first batch was not shuffled"
            raise ValueError(msg)
