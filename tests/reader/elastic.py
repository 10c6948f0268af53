"""Jobs that stop at any batch and go on in another world, with samples that are only numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming_core import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Numbers", "Run", "Shape", "write_numbers"]

Shape = tuple[int, int]
"""Nodes, and ranks of each."""


class Numbers(StreamingDataset):
    """Gives the number of each sample and reads no shard."""

    def __getitem__(self, at: Any) -> Any:
        return at


def write_numbers(folder: Path, count: int) -> Path:
    """Write `count` samples in shards of some forty."""
    with MDSWriter(out=folder, columns={"id": "int"}, size_limit=600) as writer:
        for number in range(count):
            writer.write({"id": number})
    return folder


@dataclass
class Run:
    """What a job was given by all ranks of a world, from a checkpoint on."""

    streams: list[dict[str, Any]]
    shape: Shape
    together: int
    """Samples of a global batch."""
    config: dict[str, Any] = field(default_factory=dict)
    state: Any = None
    drop_last: bool = False

    def __post_init__(self) -> None:
        nodes, ranks = self.shape
        alike = self.config.get("replication") or 1
        self.loaders = [self._loader(rank) for rank in range(nodes * ranks)]
        for loader in self.loaders:
            if self.state is not None:
                loader.load_state_dict(json.loads(json.dumps(self.state)))
        self.groups = [list(range(at, at + alike)) for at in range(0, nodes * ranks, alike)]

    def _loader(self, rank: int) -> StreamingDataLoader:
        nodes, ranks = self.shape
        size = self.together * (self.config.get("replication") or 1) // (nodes * ranks)
        dataset = Numbers(
            streams=[Stream(**stream) for stream in self.streams],
            batch_size=size,
            world=World(rank, nodes * ranks, ranks),
            **self.config,
        )
        return StreamingDataLoader(
            dataset, batch_size=size, drop_last=self.drop_last, collate_fn=list
        )

    def steps(self, stop: int | None = None) -> list[list[int]]:
        """Return the samples of each global batch of an epoch, until `stop` of them.

        Asserts that ranks are given the same number of samples in each, replicas the same samples,
        and that the checkpoints of all ranks agree.
        """
        iterators = [iter(loader) for loader in self.loaders]
        found: list[list[int]] = []
        while stop is None or len(found) < stop:
            batches: list[list[int]] = [next(iterator, []) for iterator in iterators]
            assert len({len(batch) for batch in batches}) == 1, [len(batch) for batch in batches]
            if not batches[0]:
                break
            for group in self.groups:
                assert all(batches[rank] == batches[group[0]] for rank in group)
            found.append([n for group in self.groups for n in batches[group[0]]])
        states = [loader.state_dict() for loader in self.loaders]
        assert all(state == states[0] for state in states)
        self.state = states[0]
        return found
