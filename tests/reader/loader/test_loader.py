"""The loader: torch's arguments and processes, finished batches, exact counts, typed errors."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from tests.reader.loader.standin import (
    Numbers,
    first_column,
)
from tests.reader.loader.ways import (
    FORKED,
    HERE,
    IN_PROCESS_AND_FORKED,
    PERSISTENT,
    SPAWNED,
    ids_of,
)
from torch.utils.data import DataLoader, TensorDataset, default_collate, get_worker_info

from streaming_reader.loader import StreamingDataLoader

# Three workers on two cores must not fail the test.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

_process = pytest.mark.process
_essential = pytest.mark.essential


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(HERE, id="in process"),
        pytest.param(FORKED, id="fork", marks=[_process, _essential]),
        pytest.param(PERSISTENT, id="fork, persistent", marks=_process),
        pytest.param(
            {**SPAWNED, "num_workers": 1, "persistent_workers": True},
            id="spawn, persistent",
            marks=[_process, _essential],
        ),
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "forkserver"},
            id="forkserver",
            marks=_process,
        ),
        pytest.param(
            {"num_workers": 3, "multiprocessing_context": "fork", "prefetch_factor": 5},
            id="three, prefetching",
            marks=_process,
        ),
    ],
)
def test_every_kind_of_worker_gives_the_same_batches(way: dict[str, Any]) -> None:
    """Values, types, order and count are equal for any start method, twice in a row."""
    loader = StreamingDataLoader(Numbers(103), 10, **way)
    for _ in range(2):
        batches = list(loader)
        assert ids_of(batches) == list(range(103))
        for batch in batches:
            assert list(batch) == ["id", "x", "text", "blob"]
            assert isinstance(batch["x"], torch.Tensor)
            assert batch["x"].eq(batch["id"][:, None]).all()
            assert batch["text"] == [str(int(i)) for i in batch["id"]]
            assert batch["blob"] == [bytes([int(i) % 256]) * 5000 for i in batch["id"]]
        assert loader.num_samples_yielded == 103


@pytest.mark.parametrize("workers", IN_PROCESS_AND_FORKED)
def test_formats_and_drop_last_reach_the_data_set(workers: int) -> None:
    """`batch_format` says what a batch consists of, `drop_last` what becomes of a short one."""
    loader = StreamingDataLoader(
        Numbers(25), 10, batch_format="numpy", drop_last=True, num_workers=workers
    )
    batches = list(loader)
    assert ids_of(batches) == list(range(20))
    assert all(type(batch["x"]) is np.ndarray for batch in batches)


@_process
def test_the_loader_stays_what_users_expect() -> None:
    """Attributes and length are torch's, however batches are made."""
    data = Numbers(103)
    loader = StreamingDataLoader(data, 10, num_workers=2)
    assert loader.dataset is data
    assert (loader.batch_size, loader.drop_last, len(loader)) == (10, False, 11)
    assert loader.collate_fn is default_collate
    assert isinstance(loader, DataLoader)
    assert len(list(loader)) == 11


@pytest.mark.parametrize(
    ("workers", "drop_last"),
    [(0, False), (0, True), pytest.param(2, True, marks=_process)],
)
def test_a_collate_function_gets_lists_of_samples(workers: int, drop_last: bool) -> None:
    """What it returns arrives as torch's loader gives it, and samples are counted, not columns."""
    options: dict[str, Any] = {
        "batch_size": 4, "num_workers": workers, "collate_fn": first_column, "drop_last": drop_last
    }  # fmt: skip
    ours, theirs = StreamingDataLoader(Numbers(42), **options), DataLoader(Numbers(42), **options)
    for a, b in zip(ours, theirs, strict=True):
        assert a[0].equal(b[0])
    assert ours.num_samples_yielded == (40 if drop_last else 42)


@_process
def test_without_a_batch_size_samples_come_one_by_one() -> None:
    """As torch does it: converted, not collated; each is counted."""
    loader = StreamingDataLoader(Numbers(9), None, num_workers=2)
    samples = list(loader)
    assert sorted(sample["id"] for sample in samples) == list(range(9))
    assert isinstance(samples[0]["x"], torch.Tensor)
    assert loader.num_samples_yielded == 9


@pytest.mark.parametrize("workers", IN_PROCESS_AND_FORKED)
def test_other_data_sets_are_loaded_as_torch_does_it(workers: int) -> None:
    """A map-style data set shuffles, has no state, and counts its samples."""
    data = TensorDataset(torch.arange(50), torch.arange(50))
    loader = StreamingDataLoader(data, 8, shuffle=True, num_workers=workers)
    seen = [int(i) for batch in loader for i in batch[0]]
    assert sorted(seen) == list(range(50)) != seen
    assert loader.num_samples_yielded == 50
    assert loader.state_dict() is None
    loader.load_state_dict(None)
    with pytest.raises(TypeError, match="TensorDataset is no streaming data set"):
        loader.load_state_dict({"epoch": 1})


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(HERE, id="in process"),
        pytest.param(FORKED, id="fork", marks=[_process, _essential]),
        pytest.param(PERSISTENT, id="fork, persistent", marks=_process),
    ],
)
def test_state_counts_what_the_trainer_received(way: dict[str, Any]) -> None:
    """Prefetched batches do not count, ranks do, replicas count once; a new iteration is at 0."""
    loader = StreamingDataLoader(Numbers(60, num_ranks=3), 4, **way)
    assert loader.state_dict() == {"num_samples": 0, "from_beginning": False}
    for received, _ in enumerate(loader, 1):
        assert loader.num_samples_yielded == 4 * received
        assert loader.state_dict() == {"num_samples": 4 * received * 3, "from_beginning": False}
        if received == 7:
            break
    assert loader.num_samples_yielded == 28
    iterator = iter(loader)
    assert loader.num_samples_yielded == 0
    next(iterator)
    assert loader.num_samples_yielded == 4


def test_a_state_goes_to_the_data_set() -> None:
    """Loading is the data set's business."""
    data = Numbers(4)
    StreamingDataLoader(data).load_state_dict({"epoch": 3})
    assert data.loaded == {"epoch": 3}


@_process
def test_two_loaders_at_once_do_not_disturb_each_other() -> None:
    """Batches and counts of two data sets, and of two iterations of one, stay apart."""
    one = StreamingDataLoader(Numbers(40, 700), 4, num_workers=2)
    two = StreamingDataLoader(Numbers(80, 800), 8, num_workers=1)
    again = iter(one)
    got = [[], [], []]  # type: ignore[var-annotated]
    for a, b, c in zip(again, two, one, strict=True):
        for kept, batch in zip(got, (a, b, c), strict=True):
            kept.append(batch)
    assert [ids_of(batches) for batches in got] == [
        list(range(40)),
        list(range(80)),
        list(range(40)),
    ]
    assert (one.num_samples_yielded, two.num_samples_yielded) == (40, 80)


@_process
def test_kept_batches_never_change() -> None:
    """Whoever keeps all batches of an epoch gets them whole, though slots run out."""
    batches = list(StreamingDataLoader(Numbers(2000), 10, num_workers=2, prefetch_factor=2))
    assert ids_of(batches) == list(range(2000))
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in batches)


@_process
def test_out_of_order_delivery_loses_nothing() -> None:
    """With `in_order=False` all batches come, in whatever order."""
    loader = StreamingDataLoader(Numbers(200), 4, num_workers=3, in_order=False)
    assert sorted(ids_of(loader)) == list(range(200))


# --- what else torch's loader can do --------------------------------------------------------------


def _tell_data_set(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.width = 3  # type: ignore[attr-defined]


@_process
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_init_sees_the_users_data_set(method: str) -> None:
    """Worker info of torch names the data set that the loader was made with."""
    loader = StreamingDataLoader(
        Numbers(8), 4, num_workers=1, worker_init_fn=_tell_data_set, multiprocessing_context=method
    )
    assert [tuple(batch["x"].shape) for batch in loader] == [(4, 3), (4, 3)]


@_process
def test_generator_and_timeout_are_torchs() -> None:
    """The base seed comes from the generator, and a slow worker is an error after the timeout."""
    seeds = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(5)
        iterator = iter(StreamingDataLoader(Numbers(8), 4, generator=generator, num_workers=1))
        seeds.append(iterator._base_seed)
    assert seeds[0] == seeds[1]
    timed_out = multiprocessing.get_context("fork").Event()
    iterator = iter(StreamingDataLoader(_Never(timed_out), 4, num_workers=1, timeout=0.3))
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        next(iterator)
    timed_out.set()  # the worker can end


class _Never(Numbers):
    """A dataset without batches until the trainer has given up."""

    def __init__(self, given_up: Any) -> None:
        """Wait for this event."""
        super().__init__(8)
        self.given_up = given_up

    def batches(self, **_: Any) -> Any:
        """Return nothing, too late."""
        self.given_up.wait(60)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
@pytest.mark.parametrize("workers", IN_PROCESS_AND_FORKED)
def test_pinning_gives_the_same_batches(workers: int) -> None:
    """Without an accelerator nothing happens; with one, tensors are page-locked."""
    loader = StreamingDataLoader(Numbers(40), 4, num_workers=workers, pin_memory=True)
    batches = list(loader)
    assert ids_of(batches) == list(range(40))
    assert all(batch["x"].is_pinned() == torch.accelerator.is_available() for batch in batches)
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in batches)
    assert loader.num_samples_yielded == 40
