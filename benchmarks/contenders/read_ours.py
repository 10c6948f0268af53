"""streaming-core's `StreamingDataset` and `StreamingDataLoader` on local MDS shards.

Options: `method`, see `_reading`; `shuffle_algo`; `order` is `kept` if orders that were computed
once may be found again by a later process, as in a training run that is resumed on its machine.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs, timed
from _truth import shared_data, truth_of

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare", "write"]


class _Source:
    distributions: tuple[str, ...] = ("streaming-core", "numpy", "torch")

    def __init__(self, folder: Path, task: Task, shuffle_algo: str) -> None:
        self._folder = folder
        self._batch_size = BATCH_SIZES[task.work]
        self._shuffle_algo = shuffle_algo
        self._opened: dict[bool, StreamingDataset] = {}

    def _open(self, *, shuffle: bool) -> StreamingDataset:
        """One object for all runs: opening is no part of what a rate is made of."""
        if shuffle not in self._opened:
            self._opened[shuffle] = self._construct(shuffle=shuffle)
        return self._opened[shuffle]

    def _construct(self, *, shuffle: bool) -> StreamingDataset:
        return StreamingDataset(
            local=str(self._folder),
            batch_size=self._batch_size,
            shuffle=shuffle,
            shuffle_algo=self._shuffle_algo,
            shuffle_seed=SHUFFLE_SEED,
        )

    def samples(self) -> Iterable[dict[str, Any]]:
        return self._open(shuffle=False)

    def batches(self, num_workers: int) -> Iterable[Mapping[str, Any]]:
        dataset = self._open(shuffle=True)
        if num_workers == 0:
            return Epochs(lambda: dataset.batches(batch_format="numpy"))
        loader: Iterable[Mapping[str, Any]] = self._loader(
            dataset, num_workers, persistent_workers=True
        )
        return loader

    def get(self, number: int) -> dict[str, Any]:
        sample: dict[str, Any] = self._open(shuffle=False)[number]
        return sample

    def take(self, numbers: list[int]) -> Mapping[str, Any]:
        columns: Mapping[str, Any] = self._open(shuffle=False).take(numbers)
        return columns

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        loader = self._loader(self._construct(shuffle=True), num_workers)
        if state is not None:
            loader.load_state_dict(state)
        opened: Iterable[Mapping[str, Any]] = loader
        return opened

    def _loader(self, dataset: StreamingDataset, num_workers: int, **options: Any) -> Any:  # noqa: ANN401 - torch's loader
        return _loader_class()(
            dataset, batch_size=self._batch_size, num_workers=num_workers, **options
        )


def _loader_class() -> Any:  # noqa: ANN401 - needs torch, which reading without a loader does not
    from streaming_reader.loader import StreamingDataLoader  # noqa: PLC0415 - see above

    return StreamingDataLoader


def write(work: Work, out: Path) -> None:
    """Write the shards."""
    with MDSWriter(out=str(out), columns=dict(work.columns), size_limit=work.shard_bytes) as writer:
        for batch in work.batches():
            writer.write_batch(batch)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards; import what reading needs; begin without orders from earlier."""
    truth = truth_of(task, shared)
    method = options["method"]
    if method in {"loader", "first", "resume"}:
        _loader_class()
    kept = options.get("order") == "kept"
    # Those who begin without one must not take away what another is to find again.
    cache = shared / ("orders-kept" if kept else "orders")
    if not kept:
        shutil.rmtree(cache, ignore_errors=True)
    os.environ["STREAMING_CACHE_DIR"] = str(cache)
    source = _Source(
        shared_data(task, shared, "mds", write), task, options.get("shuffle_algo", "py1e")
    )
    return timed(task, method, source, truth)
