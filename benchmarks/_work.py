"""The data that all contenders get, made from a seed so that no process has to send it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from _spec import Task
    from numpy.typing import NDArray

__all__ = ["WORK_TITLES", "Work", "make_work"]

WORK_TITLES = {
    "counts": "samples {x: int64}, counting up",
    "ints": "samples {x: int64, y: int64}; x counts up, y is random below 2^40",
    "tokens": "samples {tokens: uint16[2048]}, Zipf-like below 50,000",
    "blobs": "samples {data: bytes}, random, 90 to 110 kB each",
    "rows": "rows {a: int64, b: int32, c: float64, d: float32, s: string of some 22 characters}",
    "imports": "interpreter, freshly started, its files in the page cache",
}

_POOL_BYTES = 128 << 20
_VOCABULARY = 50_000
_TOKENS_PER_SAMPLE = 2048


class Work(Protocol):
    """Samples one by one, as a user's loop would make them, and the same in batches."""

    @property
    def columns(self) -> Mapping[str, str]:
        """MDS encodings by column name."""

    @property
    def payload_bytes(self) -> int:
        """Bytes of all values, without any framing."""

    @property
    def shard_bytes(self) -> int:
        """How large the shards or chunks of readers' data become."""

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield each sample as a dict of Python ints, a numpy array or bytes."""

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield columns of many samples: numpy arrays, or lists of bytes."""


@dataclass(frozen=True, slots=True)
class _Ints:
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    rows: list[tuple[int, int]]
    """The same values as Python ints: making those is not the writer's work."""

    columns: Mapping[str, str]
    payload_bytes: int
    batch_rows: int = 65_536
    shard_bytes: int = 1 << 20
    """Some twenty: litData's workers crawl where they have to share a few shuffled chunks."""

    def samples(self) -> Iterator[dict[str, Any]]:
        for x, y in self.rows:
            yield {"x": x, "y": y}

    def batches(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self.x), self.batch_rows):
            part = slice(start, start + self.batch_rows)
            yield {"x": self.x[part], "y": self.y[part]}


@dataclass(frozen=True, slots=True)
class _Counts:
    num_samples: int
    columns: Mapping[str, str]
    payload_bytes: int
    batch_rows: int = 65_536
    shard_bytes: int = 1 << 20
    """Small, so that there are as many shards to shuffle as in data of larger samples."""

    def samples(self) -> Iterator[dict[str, Any]]:
        for x in range(self.num_samples):
            yield {"x": x}

    def batches(self) -> Iterator[dict[str, Any]]:
        for start in range(0, self.num_samples, self.batch_rows):
            stop = min(start + self.batch_rows, self.num_samples)
            yield {"x": np.arange(start, stop, dtype=np.int64)}


@dataclass(frozen=True, slots=True)
class _Tokens:
    tokens: NDArray[np.uint16]
    columns: Mapping[str, str]
    payload_bytes: int
    batch_rows: int = 1024
    shard_bytes: int = 1 << 26

    def samples(self) -> Iterator[dict[str, Any]]:
        for row in self.tokens:
            yield {"tokens": row}

    def batches(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self.tokens), self.batch_rows):
            yield {"tokens": self.tokens[start : start + self.batch_rows]}


@dataclass(frozen=True, slots=True)
class _Blobs:
    blobs: list[bytes]
    """As many distinct values as fill the pool; a sample beyond takes the first again."""

    num_samples: int
    columns: Mapping[str, str]
    payload_bytes: int
    batch_rows: int = 64
    shard_bytes: int = 1 << 26

    def samples(self) -> Iterator[dict[str, Any]]:
        blobs, num_blobs = self.blobs, len(self.blobs)
        for i in range(self.num_samples):
            yield {"data": blobs[i % num_blobs]}

    def batches(self) -> Iterator[dict[str, Any]]:
        blobs, num_blobs = self.blobs, len(self.blobs)
        for start in range(0, self.num_samples, self.batch_rows):
            stop = min(start + self.batch_rows, self.num_samples)
            yield {"data": [blobs[i % num_blobs] for i in range(start, stop)]}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a table, as data sets that nobody made for training have them."""

    table: Mapping[str, NDArray[Any]]
    text: list[str]
    columns: Mapping[str, str]
    payload_bytes: int
    batch_rows: int = 1_000_000
    """Rows of a file, all in one row group."""
    shard_bytes: int = 1 << 26

    def samples(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            names = list(batch)
            values = (v if isinstance(v, list) else v.tolist() for v in batch.values())
            for row in zip(*values, strict=True):
                yield dict(zip(names, row, strict=True))

    def batches(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self.text), self.batch_rows):
            part = slice(start, start + self.batch_rows)
            numbers = {name: values[part] for name, values in self.table.items()}
            yield {**numbers, "s": self.text[part]}


def make_work(task: Task) -> Work:
    """Make the data of `task`: equal in every process, whatever its numpy version."""
    makers: dict[str, Callable[[int, np.random.Generator], Work]] = {
        "counts": _make_counts,
        "ints": _make_ints,
        "tokens": _make_tokens,
        "blobs": _make_blobs,
        "rows": _make_rows,
    }
    return makers[task.work](task.num_samples, np.random.Generator(np.random.PCG64(task.seed)))


def _make_counts(num_samples: int, _rng: np.random.Generator) -> _Counts:
    return _Counts(num_samples, {"x": "int64"}, 8 * num_samples)


def _make_ints(num_samples: int, rng: np.random.Generator) -> _Ints:
    x = np.arange(num_samples, dtype=np.int64)
    y = rng.integers(0, 1 << 40, num_samples, dtype=np.int64)
    rows = list(zip(x.tolist(), y.tolist(), strict=True))
    return _Ints(x, y, rows, {"x": "int64", "y": "int64"}, x.nbytes + y.nbytes)


def _make_tokens(num_samples: int, rng: np.random.Generator) -> _Tokens:
    # Ranks by frequency 1 / (rank + 2.7), looked up in a table of quantiles: drawing from the
    # distribution itself would take longer than all the writers together.
    shares = np.cumsum(1 / (np.arange(_VOCABULARY) + 2.7))
    quantiles = (np.arange(1 << 20) + 0.5) / (1 << 20)
    table = np.searchsorted(shares / shares[-1], quantiles).astype(np.uint16)
    tokens = np.empty((num_samples, _TOKENS_PER_SAMPLE), np.uint16)
    for start in range(0, num_samples, 1024):
        part = tokens[start : start + 1024]
        part[:] = table[rng.integers(0, 1 << 20, part.shape, dtype=np.uint32)]
    columns = {"tokens": f"ndarray:uint16:{_TOKENS_PER_SAMPLE}"}
    return _Tokens(tokens, columns, tokens.nbytes)


def _make_blobs(num_samples: int, rng: np.random.Generator) -> _Blobs:
    sizes = rng.integers(90_000, 110_001, min(num_samples, _POOL_BYTES // 100_000))
    blobs = [rng.bytes(int(size)) for size in sizes]
    rounds, rest = divmod(num_samples, len(blobs))
    payload_bytes = rounds * sum(map(len, blobs)) + sum(map(len, blobs[:rest]))
    return _Blobs(blobs, num_samples, {"data": "bytes"}, payload_bytes)


def _make_rows(num_samples: int, rng: np.random.Generator) -> _Rows:
    table: dict[str, NDArray[Any]] = {
        "a": rng.integers(0, 1 << 40, num_samples, dtype=np.int64),
        "b": rng.integers(0, 1 << 30, num_samples, dtype=np.int32),
        "c": rng.random(num_samples),
        "d": rng.random(num_samples, dtype=np.float32),
    }
    text = [f"user {i:012d}/{i % 9973}" for i in range(num_samples)]
    columns = {"a": "int64", "b": "int32", "c": "float64", "d": "float32", "s": "str"}
    nbytes = sum(values.nbytes for values in table.values()) + sum(map(len, text))
    return _Rows(table, text, columns, nbytes)
