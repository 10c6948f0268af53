"""A small data set with the loader's contract, for spawned workers too; and looking around."""

from __future__ import annotations

import gc
import os
import signal
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tests.reader.waiting import until
from torch.utils.data import IterableDataset, get_worker_info

from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Boom",
    "Numbers",
    "children",
    "descriptors",
    "first_column",
    "shm",
    "temp_files",
    "until_gone",
    "until_reaped",
]


class Boom(Exception):  # noqa: N818 - a name to look for
    """An error with attributes and a constructor that takes more than a message."""

    def __init__(self, shard: int, url: str) -> None:
        """Keep both."""
        super().__init__(shard, url)
        self.shard = shard
        self.url = url


class _Engine:
    """What the loader asks a dataset for beside samples."""

    transforms = None
    length = 1 << 30
    overrides_iter = False
    is_local = True

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        shared = SimpleNamespace(announce=lambda _name: None, totals=dict)
        self.epochs = SimpleNamespace(batch_size=None, shared=shared)

    def __reduce__(self) -> Any:
        return _Engine, (self.num_ranks,)

    def warn_if_short(self, batch_size: int) -> None:
        """Find an epoch long enough."""

    def refuse_mixed(self, *_: Any) -> None:
        """Find nothing wrong."""

    def counted_batches(self, dataset: Numbers, *, lent: bool, **options: Any) -> Any:
        """Return what the dataset makes, each with its number of samples."""
        del lent
        return ((batch, len(batch["id"])) for batch in dataset.batches(**options))


class Numbers(IterableDataset[Any]):
    """Samples 0 … count - 1; batch k goes to worker k modulo the number of workers."""

    def __init__(self, count: int, width: int = 512, **plan: Any) -> None:
        """Make `count` samples of an id and `width` numbers; `plan` says what goes wrong."""
        self.count = count
        self.width = width
        self.plan = plan
        self.begun = 0
        self.loaded: Any = None
        self._streaming_engine = _Engine(plan.get("num_ranks", 1))

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.count

    def batches(
        self, *, batch_format: str, ragged: str, batch_size: int, drop_last: bool
    ) -> Iterator[dict[str, Any]]:
        """Begin an epoch at once; its number is the first thing a broken plan looks at."""
        assert ragged == "list"
        self.begun += 1
        if self.plan.get("fail_at_begin") == self.begun:
            raise Boom(-1, "begin")
        return self._batches(batch_format, batch_size, drop_last)

    def _batches(
        self, batch_format: str, batch_size: int, drop_last: bool
    ) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for k in range(worker, -(-self.count // batch_size), workers):
            self._disturb(k, info)
            ids = np.arange(k * batch_size, min(self.count, (k + 1) * batch_size))
            if drop_last and len(ids) < batch_size:
                return
            batch: dict[str, Any] = {"id": ids, "x": np.repeat(ids[:, None], self.width, 1)}
            if batch_format == "torch":
                batch = {name: torch.from_numpy(column) for name, column in batch.items()}
            batch["text"] = [str(i) for i in ids]
            batch["blob"] = [bytes([i % 256]) * 5000 for i in ids]
            yield batch

    def _disturb(self, k: int, info: Any) -> None:
        if self.plan.get("fail_at_batch") == k:
            raise Boom(k, "s3://bucket/shard")
        if self.plan.get("index_error_at_batch") == k:
            raise IndexInvalidError("here", (Problem("$.a", "wrong", "type"),))
        if self.plan.get("stop_at_batch") == k:
            raise StopIteration
        if self.plan.get("kill_at_batch") == k and info is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield samples, batches of four for each worker in turn."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for first in range(worker * 4, self.count, workers * 4):
            for i in range(first, min(first + 4, self.count)):
                yield {"id": i, "x": np.full(self.width, i)}

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        """Return what was asked for."""
        return {"num_samples": num_samples, "from_beginning": from_beginning}

    def load_state_dict(self, state: Any) -> None:
        """Keep the state."""
        self.loaded = state


def first_column(samples: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Collate to a list of one tensor."""
    return [torch.stack([torch.from_numpy(sample["x"]) for sample in samples])]


def descriptors() -> int:
    """Return the number of open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    """Return the processes that this one has started and that are still there."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split())


def shm() -> set[str]:
    """Return the names in shared memory, but for those that exist for a moment in any process."""
    names = {path.name for path in Path("/dev/shm").iterdir()}  # noqa: S108 - to look only
    return {name for name in names if not name.startswith(("sem.mp-", "torch_"))}


def temp_files(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}


def until_reaped(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds that needs garbage collected or ended children reaped."""

    def settled() -> bool:
        gc.collect()
        active_children()  # waits for those that have ended
        return holds()

    until(settled, f"not before the deadline: {what}")


def until_gone(found: Callable[[], set[str]], what: str) -> None:
    """Wait until nothing that is found now exists any more; other processes may add to it."""
    left = found()

    def all_gone() -> bool:
        left.intersection_update(found())
        return not left

    until_reaped(all_gone, f"{what} is gone: {sorted(left)}")
