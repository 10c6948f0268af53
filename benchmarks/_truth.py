"""What data is right: a number for each sample, and the folders in which data waits for readers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from _work import make_work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from _spec import Task
    from _work import Work
    from numpy.typing import NDArray

__all__ = ["Truth", "keys_of_batch", "shared_data", "truth_of"]

_MIX = 1_000_003


@dataclass(frozen=True, slots=True)
class Truth:
    """What readers have to find."""

    keys: NDArray[np.int64]
    """A number for each sample that depends on all its values."""

    payload_bytes: int
    """Bytes of all values, without any framing."""


def keys_of_batch(work: str, batch: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the key of each sample of `batch`, whose columns may be arrays, tensors or lists."""
    if work == "counts":
        return np.asarray(batch["x"], np.int64)
    if work == "ints":
        return np.asarray(batch["x"], np.int64) * _MIX + np.asarray(batch["y"], np.int64)
    if work == "rows":
        return _keys_of_rows(batch)
    column = "tokens" if work == "tokens" else "data"
    values = (np.asarray(v, np.uint16) if work == "tokens" else v for v in batch[column])
    checksum: Callable[[Any], int] = zlib.crc32
    return np.fromiter(map(checksum, values), np.int64)


def _keys_of_rows(batch: Mapping[str, Any]) -> NDArray[np.int64]:
    keys = np.array(batch["a"], np.int64) * _MIX + np.asarray(batch["b"], np.int64)
    keys += np.ascontiguousarray(batch["c"], np.float64).view(np.int64)
    keys += np.ascontiguousarray(batch["d"], np.float32).view(np.int32)
    text = batch["s"]
    encoded = (str(value).encode() for value in getattr(text, "to_pylist", lambda: text)())
    checksum: Callable[[Any], int] = zlib.crc32
    return keys + np.fromiter(map(checksum, encoded), np.int64)


def truth_of(task: Task, shared: Path) -> Truth:
    """Return what the data of `task` holds, from the file in `shared` if some process made it."""

    def make(work: Work, out: Path) -> None:
        out.mkdir()
        keys = [keys_of_batch(task.work, batch) for batch in work.batches()]
        np.savez(out / "truth.npz", keys=np.concatenate(keys), payload_bytes=work.payload_bytes)

    with np.load(shared_data(task, shared, "truth", make) / "truth.npz") as arrays:
        return Truth(arrays["keys"], int(arrays["payload_bytes"]))


def shared_data(task: Task, shared: Path, form: str, write: Callable[[Work, Path], None]) -> Path:
    """Return the folder that holds the data of `task` in `form`; let `write` make it if need be.

    One process at a time may ask, as the runner sees to.
    """
    folder = shared / f"{form}-{task.work}-{task.num_samples}-{task.seed}"
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".unfinished")
        write(make_work(task), unfinished)
        unfinished.rename(folder)
    return folder
