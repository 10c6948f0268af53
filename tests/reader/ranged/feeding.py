"""What the tests of iterating with ranges share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.reader.ranged.making import SECONDS
from tests.reader.waiting import until

from streaming_core._columns import Columns
from streaming_core._store import register_store
from streaming_reader._feed import Feed
from streaming_reader._ranged import Line, Outlook
from streaming_reader._shared import COUNTERS

if TYPE_CHECKING:
    from streaming_core import StreamingDataset
    from streaming_reader._catalogue import Catalogue

__all__ = [
    "SLOW",
    "feed_of",
    "ids_of",
    "range_threads",
    "ranged_of",
    "register",
    "until_no_range_threads",
]

SLOW = Line(latency=0.001, rate=1e6, whole_rate=1e6)
"""A line on which shards of a mebibyte take a second."""


def feed_of(
    source: Catalogue, ids: np.ndarray[Any, Any], *, ahead: int = 1000, **given: Any
) -> Feed:
    """Return a feed of these samples, in this order."""
    counters = np.zeros(len(COUNTERS), np.int64)
    outlook = Outlook(
        **{"num_samples": len(ids), "sample_bytes": source.mean_sample_bytes, **given}
    )
    return Feed(
        source, iter([ids]), ahead=ahead, timeout=SECONDS, counters=counters, outlook=outlook
    )


def range_threads() -> list[str]:
    """Return the names of the threads that read ranges."""
    return [t.name for t in threading.enumerate() if t.name.startswith("streaming-range")]


def until_no_range_threads() -> None:
    """Wait until nothing reads ranges any more."""
    until(lambda: not range_threads(), "threads that read ranges live on")


def register(store: Any) -> None:
    """Let URLs of `rangetest://` name this store."""
    register_store("rangetest", lambda _: store)


def ranged_of(dataset: StreamingDataset) -> Any:
    """Return what a dataset reads ranges with."""
    found = dataset._streaming_engine.catalogue.ranged
    assert found is not None
    return found


def ids_of(batch: Any) -> list[int]:
    """Return the ids of a batch of any kind."""
    if isinstance(batch, Columns):
        return [row["id"] for row in batch.rows()]
    if isinstance(batch, list):
        return [sample["id"] for sample in batch]
    found: list[int] = batch["id"].tolist()
    return found
