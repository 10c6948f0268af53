"""Accelerate, Lightning and the trainer of transformers: every sample once, and resumed exactly."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.conftest import write_ids
from tests.reader.frameworks.launching import launch
from tests.reader.frameworks.trainer_jobs import BATCH, CASES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]

_JOBS = "tests.reader.frameworks.trainer_jobs"
_SAMPLES = 128


@pytest.fixture(scope="session")
def even_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set that batches of two ranks divide."""
    return write_ids(tmp_path_factory.mktemp("even") / "a", 0, _SAMPLES, shard=9)


def _ids(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


def _is_epoch(parts: list[list[list[int]]]) -> bool:
    """Tell whether the batches of all ranks hold every sample once."""
    return Counter(_ids(list(itertools.chain(*parts)))) == Counter(range(_SAMPLES))


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate_gives_every_sample_once(
    even_folder: Path, ids_folder: Path, tmp_path: Path, ranks: int
) -> None:
    """Whichever way it prepares a loader, in batches of the size asked for, as many as it says.

    Where the samples cannot be divided evenly, Accelerate repeats some, and still leaves none out.
    """
    by_rank = launch(ranks, _JOBS, "accelerate", tmp_path / "out", even_folder, ids_folder)
    ours = [found["ours"]["epochs"] for found in by_rank]
    assert ours[0][0] != ours[0][1]
    for variant, workers, data in CASES:
        name = f"{variant}, {workers} workers, {data}"
        size = BATCH // ranks if variant.startswith("split") else BATCH
        told = [found[name] for found in by_rank]
        if data == "odd":
            for epoch in range(2):
                odd = [_ids(found["epochs"][epoch]) for found in told]
                assert set(itertools.chain(*odd)) == set(range(101)), name
            continue
        for epoch in range(2):
            assert _is_epoch([found["epochs"][epoch] for found in told]), name
        for found in told:
            assert [len(epoch) for epoch in found["epochs"]] == [found["length"]] * 2, name
            assert {len(batch) for epoch in found["epochs"] for batch in epoch} == {size}, name
        if not variant.startswith("split"):
            assert [found["epochs"] for found in told] == ours, name


@pytest.fixture(scope="module", params=[1, 2])
def accelerated(
    request: pytest.FixtureRequest, even_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    """Return what each rank has seen of a `StreamingDataLoader` that was prepared."""
    out = tmp_path_factory.mktemp("accelerated")
    return launch(request.param, _JOBS, "prepared", out, even_folder)


def test_a_prepared_loader_is_left_as_it_is(accelerated: list[Any]) -> None:
    """Each rank has its own samples, on the device of Accelerate, whose gradients are in step.

    They are due every fifth batch, and with the last of an epoch.
    """
    for epoch in range(2):
        assert _is_epoch([found["epochs"][epoch] for found in accelerated])
    for found in accelerated:
        length = len(found["epochs"][0])
        due = [n % 5 == 0 or n == length for n in range(1, length + 1)]
        assert found["synced"] == due * 2
        assert found["length"] == length


def test_accelerates_own_checkpoints_hold_where_training_stands(accelerated: list[Any]) -> None:
    """What `save_state` saved after three batches, `load_state` goes on from, in that epoch."""
    for found in accelerated:
        assert found["resumed"][0] == found["third"][3:]
        assert len(found["resumed"][1]) == len(found["third"])
        first, after_the_end = found["lengths"]
        assert first == after_the_end > 0
    assert _is_epoch([found["third"] for found in accelerated])
    assert _is_epoch([found["resumed"][1] for found in accelerated])


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_resumes_in_the_middle_of_an_epoch(
    even_folder: Path, tmp_path: Path, ranks: int
) -> None:
    """From its own checkpoint, at exactly the next batch; epochs differ and are whole."""
    by_rank = launch(ranks, _JOBS, "lightning", tmp_path / "out", even_folder)
    for epoch in ("0", "1", "2"):
        assert _is_epoch([found["whole"][epoch] for found in by_rank])
    for found in by_rank:
        whole, stopped, resumed = found["whole"], found["stopped"], found["resumed"]
        assert whole["0"] != whole["1"] != whole["2"]
        assert found["length"] == len(whole["0"]) == _SAMPLES // BATCH // ranks
        assert stopped["0"] == whole["0"]
        assert stopped["1"] == whole["1"][:7]
        assert resumed == {"1": whole["1"][5:], "2": whole["2"]}


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_trainer_of_transformers_resumes_in_the_middle_of_an_epoch(
    even_folder: Path, tmp_path: Path, ranks: int
) -> None:
    """With the loader it makes itself, and with ours and its state; both give the same batches.

    Where it would skip batches of an epoch that it does not name, it is refused.
    """
    by_rank = launch(ranks, _JOBS, "transformers", tmp_path / "out", even_folder)
    length = _SAMPLES // BATCH // ranks
    for start in (0, length):
        assert _is_epoch([found["default"][start : start + length] for found in by_rank])
    for found in by_rank:
        assert found["length"] == length
        assert len(found["default"]) == 2 * length + 3
        assert found["default"] == found["ours"]
        assert found["default resumed"] == found["default"][length + 5 :]
        assert found["ours resumed"] == found["default"][length + 5 :]
        assert "ignore_data_skip" in found["refused"]
