"""Iterating datasets from a checkpoint, as the script of fixtures and the tests both do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.compat.jobs import opened

from streaming_core import StreamingDataLoader, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["epochs_after", "located", "state_after"]

Ids = list[list[list[int]]]


def located(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return dataset arguments whose streams lie below `folder`."""
    streams = [{**stream, "local": str(folder / stream["local"])} for stream in settings["streams"]]
    return {**settings, "streams": streams}


def _ids(batch: Mapping[str, Any]) -> list[int]:
    return [int(number) for number in batch["id"]]


def state_after(
    settings: Mapping[str, Any],
    world: Sequence[int],
    *,
    epochs: int,
    batches: int | None,
    drop_last: bool = False,
    num_workers: int = 0,
    by_dataset: bool = False,
) -> dict[str, Any]:
    """Return the checkpoint after some epochs and some batches of the next, of rank 0.

    Without `batches` the last epoch is iterated to its end. `by_dataset` asks the dataset for the
    checkpoint, and tells it the number of samples, instead of the loader.
    """
    num_ranks, ranks_per_node = world
    place = World(rank=0, num_ranks=num_ranks, ranks_per_node=ranks_per_node)
    dataset = opened(dict(settings), world=place)
    size = settings["batch_size"]
    loader = StreamingDataLoader(
        dataset, batch_size=size, num_workers=num_workers, drop_last=drop_last
    )
    for _ in range(epochs):
        for _ in loader:
            pass
    if batches is not None:
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
        if by_dataset:
            replicas = settings.get("replication") or 1
            return dataset.state_dict(batches * size * num_ranks // replicas)
    state = loader.state_dict()
    assert state is not None
    return state


def epochs_after(
    settings: Mapping[str, Any],
    world: Sequence[int],
    state: dict[str, Any],
    *,
    drop_last: bool = False,
    epochs: int = 2,
) -> Ids:
    """Return for each of the next iterations what each rank is given, once `state` was loaded."""
    num_ranks, ranks_per_node = world
    found: Ids = [[] for _ in range(epochs)]
    for rank in range(num_ranks):
        place = World(rank=rank, num_ranks=num_ranks, ranks_per_node=ranks_per_node)
        dataset = opened(dict(settings), world=place)
        loader = StreamingDataLoader(
            dataset, batch_size=settings["batch_size"], drop_last=drop_last, batch_format="dict"
        )
        loader.load_state_dict(state)
        for ids in found:
            ids.append([number for batch in loader for number in _ids(batch)])
    return found
