"""What the processes of a rank share: epochs begun together, without anybody waiting."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.reader.beginning import begin

from streaming_reader._shared import Position, SharedBlock

_OPEN = Path("/proc/self/fd")


@pytest.mark.process
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_one_iteration_begin_the_same_epoch(method: str) -> None:
    """However they were started, and the next iteration's the next one."""
    context: Any = multiprocessing.get_context(method)
    block = SharedBlock()
    block.set(Position(4, 100, 2, 7, 3))
    for epoch, wanted in enumerate([Position(4, 100, 2, 7, 3), Position(5, 0, 2, 7, 3)], start=4):
        answers = context.Queue()
        workers = [
            context.Process(target=begin, args=(block, n, f"run {epoch}", answers))
            for n in range(3)
        ]
        for worker in workers:
            worker.start()
        found = dict(answers.get(timeout=240) for _ in workers)
        for worker in workers:
            worker.join(240)
        assert found == dict.fromkeys(range(3), wanted)
        assert block.current == wanted
        assert block.next_epoch == epoch + 1
    assert block.totals()["samples"] == 2 * (1 + 2 + 3)


@settings(max_examples=examples(60))
@given(
    runs=st.lists(
        st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), min_size=1, max_size=8
    )
)
def test_whichever_workers_begin_in_whatever_order(runs: list[list[int]]) -> None:
    """A worker that missed an iteration does not lag behind in the next."""
    block = SharedBlock()
    for number, workers in enumerate(runs):
        begun = {block.begin(worker=w, iteration=f"run {number}").epoch for w in workers}
        assert begun == {number}


def test_setting_counts_whatever_was_begun() -> None:
    """A checkpoint of an earlier epoch goes back there."""
    block = SharedBlock()
    for number in range(5):
        block.begin(worker=0, iteration=str(number))
    block.set(Position(2, 30))
    assert block.current is None
    assert block.next_epoch == 2
    assert block.begin(worker=1, iteration="again") == Position(2, 30)
    assert block.begin(worker=0, iteration="again") == Position(2, 30)
    assert block.begin(worker=0, iteration="more") == Position(3, 0)


def test_an_epoch_with_nothing_left_is_skipped_by_all() -> None:
    """Each worker that finds so comes to the same next one."""
    block = SharedBlock()
    block.set(Position(1, 999))
    for worker in (0, 1):
        assert block.begin(worker=worker, iteration="a").epoch == 1
    assert {block.skip(worker=worker, iteration="a") for worker in (0, 1)} == {Position(2, 0)}
    assert block.begin(worker=0, iteration="b").epoch == 3


def test_a_late_worker_joins_those_that_skipped() -> None:
    """It begins where they are now, not where they looked first."""
    block = SharedBlock()
    block.set(Position(1, 999))
    block.begin(worker=0, iteration="a")
    block.skip(worker=0, iteration="a")
    late = block.begin(worker=1, iteration="a")
    assert late.epoch == 2


def test_iterations_that_overlap_keep_their_epochs() -> None:
    """A worker that begins late gets what was settled, whatever others began or set meanwhile."""
    block = SharedBlock()
    block.set(Position(2, 40))
    assert block.announce("one") == Position(2, 40)
    assert block.begin(worker=0, iteration="one") == Position(2, 40)
    assert block.begin(worker=0, iteration="two") == Position(3, 0)
    assert block.begin(worker=0, iteration="three").epoch == 4
    block.set(Position(7, 5))
    assert block.begin(worker=0, iteration="four") == Position(7, 5)
    for name, wanted in [("one", Position(2, 40)), ("two", Position(3)), ("three", Position(4))]:
        assert block.begin(worker=1, iteration=name) == wanted
    assert block.current == Position(7, 5)
    assert block.next_epoch == 8


def test_the_same_name_again_is_the_next_epoch() -> None:
    """As where torch's seed, which names the workers of a run, is set anew before each epoch."""
    block = SharedBlock()
    for epoch in range(4):
        assert {block.begin(worker=w, iteration="seeded").epoch for w in (1, 0, 2)} == {epoch}


def test_a_plain_pickle_is_a_copy() -> None:
    """With the same numbers, and no tie to the original."""
    block = SharedBlock()
    block.set(Position(3, 8, 1, 2, 1))
    copy: SharedBlock = pickle.loads(pickle.dumps(block))
    assert copy.start == block.start
    copy.begin(worker=0, iteration="x")
    assert block.current is None


@pytest.mark.skipif(not _OPEN.is_dir(), reason="the system does not list descriptors")
def test_blocks_hold_no_descriptors() -> None:
    """However many there are; and what spawning took goes with the block."""
    gc.collect()
    before = len(list(_OPEN.iterdir()))
    blocks = [SharedBlock() for _ in range(50)]
    assert len(list(_OPEN.iterdir())) == before
    blocks[0]._share()
    assert len(list(_OPEN.iterdir())) > before
    blocks.clear()
    gc.collect()
    assert len(list(_OPEN.iterdir())) == before
