"""The sequences of an epoch's streams, and the names of the arrays that they need."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, final

import numpy as np

from streaming_reader._order._batching import Rows
from streaming_reader._order._sampling import resample, shard_choices
from streaming_reader._order._sequence import ArraySequence, PlainSequence
from streaming_reader._order._shuffle import check_block, shuffled
from streaming_reader._order._windowed import WindowedSequence, spread_choices

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from numpy.typing import NDArray

    from streaming_reader._order._config import OrderConfig
    from streaming_reader._order._sequence import ArrayMaker, Sequence
    from streaming_reader._order._weights import Weights

__all__ = ["Source"]

_KEY_BYTES = 16


@final
class Source:
    """Makes sequences of one stream or of all, as the settings want them."""

    def __init__(
        self,
        shard_sizes: Items[NDArray[np.int64]],
        weights: Weights,
        config: OrderConfig,
        resolved: tuple[int, int],
        epoch: int,
        arrays: ArrayMaker,
    ) -> None:
        """Take the data, and the resolved (canonical nodes, block size)."""
        self.config = config
        self.proportion = weights.proportion
        self.counts: list[int] = weights.choose.tolist()
        self.canonical_nodes, self._block = resolved
        self._sizes = [np.asarray(sizes, np.int64) for sizes in shard_sizes]
        totals = [int(sizes.sum()) for sizes in self._sizes]
        self._firsts: list[int] = [0, *np.cumsum(totals).tolist()]
        # Streams used as they are need no array of ids.
        self._whole = [total == count for total, count in zip(totals, self.counts, strict=True)]
        self._epoch = epoch
        self._arrays = arrays

    def all_streams(self) -> Sequence:
        """Return all streams, one after another, as one sequence."""
        return self._sequence(range(len(self._sizes)), self._block)

    def each_stream(self) -> list[Sequence]:
        """Return a sequence for each stream, shuffled in its share of the block."""
        return [
            self._sequence(range(i, i + 1), int(self._block * share))
            for i, share in enumerate(self.proportion.tolist())
        ]

    def turns(self, counts: list[int], nodes: int) -> list[Rows]:
        """Return for each node the shuffled order of the streams' rows."""
        if len(counts) == 1:
            return [Rows(counts, None)] * nodes
        seed, total = self._seed(by_epoch=self.config.draws_by_epoch), sum(counts)

        def make() -> NDArray[np.int64]:
            rng = np.random.default_rng(seed)
            return np.concatenate([Rows.shuffle(counts, rng) for _ in range(nodes)])

        codes = self._arrays(_key("turns", [], seed, counts, nodes), total * nodes, make)
        return [Rows(counts, codes[i * total : (i + 1) * total]) for i in range(nodes)]

    def _seed(self, *, by_epoch: bool) -> int:
        return self.config.shuffle_seed + (self._epoch if by_epoch else 0)

    def _sequence(self, streams: range, block: int) -> Sequence:
        count = sum(self.counts[i] for i in streams)
        whole = all(self._whole[i] for i in streams)
        config = self.config
        if not config.shuffle and whole:
            return PlainSequence(self._firsts[streams.start], count)
        if config.shuffle:
            check_block(config.shuffle_algo, block, config.batching_method)
        if config.shuffle and config.windowed:
            return self._windowed(streams, block)
        key = _key(
            "ids",
            [self._sizes[i] for i in streams],
            [self.counts[i] for i in streams],
            self._firsts[streams.start],
            self._epoch,
            config.shuffle_seed,
            config.sampling_method,
            config.sampling_granularity,
            (config.shuffle_algo, self.canonical_nodes, block) if config.shuffle else None,
        )
        return ArraySequence(self._arrays, key, count, lambda: self._ids(streams, block))

    def _ids(self, streams: range, block: int) -> NDArray[np.int64]:
        config = self.config
        drawn = self._seed(by_epoch=config.draws_by_epoch)
        chosen = (
            shard_choices(self._sizes[i], self.counts[i], config.sampling_granularity, drawn)
            for i in streams
        )
        units = resample(
            zip(
                (self._sizes[i] for i in streams),
                chosen,
                (self._firsts[i] for i in streams),
                strict=True,
            ),
            self._seed(by_epoch=config.sampling_method == "balanced"),
        )
        if not config.shuffle:
            return units.all_ids()
        order = shuffled(
            config.shuffle_algo,
            units.sizes,
            groups=self.canonical_nodes,
            seed=config.shuffle_seed,
            epoch=self._epoch,
            block=block,
        )
        if units.ids is not None:
            return units.ids[order]
        order += units.first
        return order

    def _windowed(self, streams: range, block: int) -> WindowedSequence:
        seed = self.config.shuffle_seed
        part_epoch = self._epoch if self.config.sampling_method == "balanced" else 0
        chosen = [
            spread_choices(
                self._sizes[i],
                self.counts[i],
                seed=seed,
                epoch=part_epoch,
                first=self._firsts[i],
            )
            for i in streams
        ]
        return WindowedSequence(
            np.concatenate([self._sizes[i] for i in streams]),
            np.concatenate(chosen),
            self._firsts[streams.start],
            groups=self.canonical_nodes,
            block=block,
            key=(seed, self._epoch),
            part_epoch=part_epoch,
        )


def _key(kind: str, arrays: Items[NDArray[np.int64]], *parts: object) -> str:
    """Return a name for what depends on `arrays` and `parts`, and on how numpy draws."""
    state = hashlib.blake2b(repr((np.__version__, parts)).encode(), digest_size=_KEY_BYTES)
    for array in arrays:
        state.update(b";%d:" % len(array) + array.astype("<i8").tobytes())
    return f"order-{kind}-{state.hexdigest()}"
