"""Epochs are the same by their numbers, whoever counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import create_dataloader
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

WAYS: list[Any] = [
    {"num_workers": 0},
    pytest.param({"num_workers": 2, "multiprocessing_context": "fork"}, marks=pytest.mark.process),
    pytest.param(
        {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
        marks=[pytest.mark.process, pytest.mark.essential],
    ),
    pytest.param(
        {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
        marks=pytest.mark.process,
    ),
]


def _made(folder: Path, **options: Any) -> tuple[Any, Any]:
    return create_dataloader(
        f"{folder}/*.parquet", batch_size=16, columns=["id"], shuffle=True, **options
    )


def _ids(loader: Any) -> list[int]:
    return [i for batch in loader for i in batch["id"].tolist()]


@pytest.fixture(scope="module")
def epochs(parquet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Return the orders of the first epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMING_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        loader, _ = _made(parquet_folder)
        return [_ids(loader) for _ in range(6)]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_number_names_the_same_order_always(
    parquet_folder: Path, epochs: list[list[int]], way: dict[str, Any]
) -> None:
    """Counted along, which changes nothing, or forwards and back, in workers that live on too."""
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    loader, _ = _made(parquet_folder, **way)
    for epoch in (0, 1, 4, 1, 0, 0, 5):
        loader.set_epoch(epoch)
        assert _ids(loader) == epochs[epoch], epoch
    loader.set_epoch(2)
    assert [_ids(loader) for _ in range(2)] == epochs[2:4]


def test_data_set_and_loader_count_together(parquet_folder: Path, epochs: list[list[int]]) -> None:
    """Either can be told; a second call counts, and an epoch that runs is not disturbed."""
    loader, dataset = _made(parquet_folder)
    dataset.set_epoch(3)
    loader.set_epoch(2)
    running = iter(loader)
    first = next(running)["id"].tolist()
    dataset.set_epoch(0)
    rest = [i for batch in running for i in batch["id"].tolist()]
    assert first + rest == epochs[2]
    assert _ids(loader) == epochs[0]


def test_counting_from_the_start_again_does_not_undo_a_checkpoint(
    parquet_folder: Path, epochs: list[list[int]]
) -> None:
    """A new process that begins to count at 0 goes on within the epoch all the same."""
    loader, _ = _made(parquet_folder)
    loader.set_epoch(2)
    running = iter(loader)
    taken = [i for _ in range(5) for i in next(running)["id"].tolist()]
    state = loader.state_dict()
    resumed, dataset = _made(parquet_folder)
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert taken + _ids(resumed) == epochs[2]
    resumed.set_epoch(1)
    assert _ids(resumed) == epochs[3]
    resumed.set_epoch(5)
    assert _ids(resumed) == epochs[5]
    dataset.next_epoch = 1
    assert _ids(resumed) == epochs[1]


def test_set_to_the_epoch_of_a_checkpoint_it_goes_on_within(
    parquet_folder: Path, epochs: list[list[int]]
) -> None:
    """As trainers do that keep the number of the epoch themselves."""
    loader, _ = _made(parquet_folder)
    loader.set_epoch(1)
    running = iter(loader)
    taken = next(running)["id"].tolist()
    resumed, _ = _made(parquet_folder)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(1)
    assert taken + _ids(resumed) == epochs[1]


def test_there_is_no_epoch_before_the_first(parquet_folder: Path) -> None:
    """And it is said."""
    _, dataset = _made(parquet_folder)
    with pytest.raises(SchemaError, match="epoch: expected at least 0, got -1"):
        dataset.set_epoch(-1)
