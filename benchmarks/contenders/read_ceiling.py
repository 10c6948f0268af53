"""What this machine allows readers: the same values from one plain file, without any format.

Option `method`: see `_reading`. In order, a loop that makes the dicts; in batches, one gather by
numpy for each column, or a copy for each `bytes`; single samples, the same one at a time. From
workers, torch moves copies of one constant batch.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from _reading import BATCH_SIZES, Epochs, timed
from _truth import shared_data, truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from _spec import Task, Timed
    from _truth import Truth
    from _work import Work
    from numpy.typing import NDArray

__all__ = ["prepare"]

_unpack_pair = struct.Struct("<qq").unpack_from


class _Plain:
    """Fixed-size columns, each in a file of its own and mapped."""

    distributions: tuple[str, ...] = ("numpy",)

    def __init__(self, folder: Path, task: Task) -> None:
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == ".npy")
        self.folder = folder
        self.columns: dict[str, NDArray[Any]] = {
            n: np.load(folder / f"{n}.npy", mmap_mode="r") for n in names
        }
        self.batch_size = BATCH_SIZES[task.work]
        self.order = np.random.default_rng(task.seed).permutation(task.num_samples)

    def samples(self) -> Iterable[dict[str, Any]]:
        if "y" not in self.columns:
            return Epochs(lambda: ({"tokens": row} for row in self._tokens))
        records = self._records
        return Epochs(lambda: ({"x": x, "y": y} for x, y in struct.iter_unpack("<qq", records)))

    @cached_property
    def _records(self) -> bytes:
        """All values of a sample beside each other, as row formats have them."""
        return np.stack([self.columns["x"], self.columns["y"]], axis=1).tobytes()

    @cached_property
    def _tokens(self) -> NDArray[np.uint16]:
        """The same mapping, without what its class adds to each row."""
        return np.asarray(self.columns["tokens"])

    def batches(self, num_workers: int) -> Iterable[Mapping[str, Any]]:
        assert num_workers == 0
        return Epochs(self._epoch)

    def _epoch(self) -> Iterator[Mapping[str, Any]]:
        for start in range(0, len(self.order), self.batch_size):
            yield self.take(self.order[start : start + self.batch_size])

    def take(self, numbers: list[int] | NDArray[np.int64]) -> Mapping[str, Any]:
        return {n: np.take(column, numbers, axis=0) for n, column in self.columns.items()}

    def get(self, number: int) -> dict[str, Any]:
        if "y" not in self.columns:
            return {"tokens": self._tokens[number]}
        x, y = _unpack_pair(self._records, number * 16)
        return {"x": x, "y": y}

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        raise NotImplementedError(num_workers, state)


class _Blobs(_Plain):
    """Values of any size in one mapped file, and where each begins."""

    def __init__(self, folder: Path, task: Task) -> None:
        super().__init__(folder, task)
        self._data = memoryview(cast("Any", np.asarray(self.columns["data"])))
        self._begins: list[int] = self.columns["begins"].tolist()

    def samples(self) -> Iterable[dict[str, Any]]:
        numbers = range(len(self._begins) - 1)
        return Epochs(lambda: ({"data": self._one(number)} for number in numbers))

    def take(self, numbers: list[int] | NDArray[np.int64]) -> Mapping[str, Any]:
        return {"data": [self._one(number) for number in numbers]}

    def get(self, number: int) -> dict[str, Any]:
        return {"data": self._one(number)}

    def _one(self, number: int) -> bytes:
        return bytes(self._data[self._begins[number] : self._begins[number + 1]])


def _write(work: Work, out: Path) -> None:
    out.mkdir()
    batches = list(work.batches())
    for name in batches[0]:
        parts = [batch[name] for batch in batches]
        if isinstance(parts[0], np.ndarray):
            np.save(out / f"{name}.npy", np.concatenate(parts))
            continue
        sizes = np.array([len(value) for part in parts for value in part])
        np.save(out / "begins.npy", np.concatenate([[0], np.cumsum(sizes)]))
        data = np.lib.format.open_memmap(
            out / f"{name}.npy", mode="w+", dtype=np.uint8, shape=(int(sizes.sum()),)
        )
        at = 0
        for part in parts:
            for value in part:
                data[at : at + len(value)] = np.frombuffer(value, np.uint8)
                at += len(value)
        data.flush()


class _Moved:
    """Times the moving alone: what is moved is always the same batch, so nothing is compared."""

    def __init__(self, source: _Plain, truth: Truth, task: Task) -> None:
        from contenders import moved_batches  # noqa: PLC0415 - torch, which the others need not

        first = source.take(source.order[: source.batch_size])
        self._timed = timed(task, "loader", moved_batches.Moved(first, task), truth)
        self.distributions: tuple[str, ...] = ("torch", "numpy")
        self.payload_bytes = truth.payload_bytes
        self.run = self._timed.run

    def count(self, out: Path) -> None:
        """Nothing to compare."""


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the plain files."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "plain", _write)
    source = (_Blobs if task.work == "blobs" else _Plain)(folder, task)
    if options["method"] == "loader":
        return _Moved(source, truth, task)
    return timed(task, options["method"], source, truth)
