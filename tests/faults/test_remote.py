"""Faults of a remote store are retried or raised, and never end in a data set with a hole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.jobs import COLUMNS, SAMPLES

from streaming_core import MDSWriter, load_index, open_store, register_store
from streaming_core._read import iterate_samples
from streaming_core.errors import AccessDeniedError, OutputNotEmptyError, StoreError
from streaming_core.testing import (
    Delay,
    Die,
    Fault,
    FaultStore,
    LoseResponse,
    MemoryStore,
    Raise,
    Truncate,
)
from streaming_writer import _output
from streaming_writer._requests import put_checked

if TYPE_CHECKING:
    from pathlib import Path

_BROKEN = Raise(StoreError("the network is down (scripted)"))
_names = count()
Store = Callable[..., FaultStore]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries follow each other at once."""
    monkeypatch.setattr(_output, "_FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def store() -> Store:
    """Return a function that gives `faulty://x` new faults, over objects that stay."""
    inner = MemoryStore(f"faults-{next(_names)}")

    def make(*faults: Fault) -> FaultStore:
        made = FaultStore(inner, faults)
        register_store("faulty", lambda _: made)
        return made

    return make


def _write(out: Any = "faulty://x", samples: Iterable[Any] = SAMPLES, **options: Any) -> int:
    """Write what is not yet safe; return how many were."""
    with MDSWriter(
        out=out, columns=COLUMNS, size_limit=400, **{"max_workers": 2, "checksums": True, **options}
    ) as writer:
        safe = writer.num_safe_samples
        for number, sample in enumerate(samples):
            if number >= safe:
                writer.write(sample)
    return safe


def _objects(where: Any) -> dict[str, bytes]:
    return {info.key: where.get(info.key) for info in where.list()}


def _read(url: str = "faulty://x") -> list[dict[str, Any]]:
    return list(iterate_samples(open_store(url), load_index(url)))


@pytest.fixture(scope="module")
def wanted() -> dict[str, bytes]:
    """Return the objects of an undisturbed conversion."""
    _write("memory://faults-whole")
    return _objects(open_store("memory://faults-whole"))


@pytest.mark.parametrize("key", ["shard.00002.mds", ".writing/00002.json", "index.json", "*"])
@pytest.mark.parametrize(
    "action",
    [_BROKEN, LoseResponse(), Die(30), Die(30, leaves_partial=True), Truncate(7)],
    ids=lambda action: type(action).__name__,
)
def test_a_passing_fault_of_a_put_is_retried(
    store: Store, wanted: dict[str, bytes], key: str, action: Any
) -> None:
    """Refused, broken off, cut short, or done with the answer lost: the next try makes it good."""
    faulty = store(Fault(action, verb="put", key=key, times=2))
    _write(retry=3)
    assert _objects(faulty.inner) == wanted
    assert faulty.count("put") == len(wanted) + _notes(wanted) + 2


def _notes(wanted: dict[str, bytes]) -> int:
    """Return how many puts go to the journal: one for each shard, and the settings."""
    return sum(key.startswith("shard.") for key in wanted) + 1


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (_BROKEN, 3),
        (Raise(AccessDeniedError("403 (scripted)")), 1),
        (Die(30), 3),
        (Die(30, leaves_partial=True), 3),
        (Truncate(7), 3),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "key", ["shard.00000.mds", "shard.00003.mds", ".writing/settings.json", ".writing/00001.json",
            "checksums.xxh128", "index.json"],
)  # fmt: skip
def test_a_lasting_fault_of_a_put_is_raised_and_resume_goes_on_after_it(
    store: Store, wanted: dict[str, bytes], key: str, fault: Any, tries: int
) -> None:
    """After `retry` tries (one if refused) the error names the object; no whole index is there."""
    faulty = store(Fault(fault, verb="put", key=key, times=None))
    with pytest.raises(StoreError):
        _write(retry=3)
    assert faulty.count("put", key) == tries
    if getattr(fault, "leaves_partial", False) or isinstance(fault, Truncate):
        # Such a store breaks its own contract, so it may show the torn object.
        assert _objects(faulty.inner).get("index.json") != wanted["index.json"]
        if key in {"index.json", ".writing/settings.json"}:
            faulty.inner.delete(key)
    else:
        assert "index.json" not in _objects(faulty.inner)
    store()
    _write(resume=True)
    assert _objects(faulty.inner) == wanted


def test_an_index_whose_answer_was_lost_is_found_finished(
    store: Store, wanted: dict[str, bytes]
) -> None:
    """The put was done but never confirmed: an error, and the next run only tidies up."""
    faulty = store(Fault(LoseResponse(), verb="put", key="index.json", times=None))
    with pytest.raises(StoreError, match="response was lost"):
        _write()
    assert _read() == SAMPLES
    again = store()
    assert _write(resume=True) == len(SAMPLES)
    assert again.count("put") == 0
    assert _objects(faulty.inner) == wanted


def test_a_store_that_loses_an_object_is_caught_before_the_index(store: Store) -> None:
    """What was acknowledged and is not there any more when the index comes is an error."""
    faulty = store()
    with (  # noqa: PT012 - whichever write it is
        pytest.raises(StoreError, match=r"'shard\.00001\.mds' the first"),
        MDSWriter(out="faulty://x", columns=COLUMNS, size_limit=400, max_workers=1) as writer,
    ):
        for sample in SAMPLES:
            faulty.inner.delete("shard.00001.mds")
            writer.write(sample)
    assert "index.json" not in _objects(faulty.inner)


@pytest.mark.parametrize("verb", ["list", "get", "head", "delete"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_faults_of_other_requests_tear_nothing(
    store: Store, wanted: dict[str, bytes], verb: Any, nth: int
) -> None:
    """Looking around, resuming, tidying up: each failing request is raised or does no harm."""
    faulty = store(Fault(_BROKEN, verb="put", key="shard.00003.mds", times=None))
    with pytest.raises(StoreError):
        _write()
    failing = store(Fault(_BROKEN, verb=verb, nth=nth))
    failed = False
    try:
        _write(resume=True, retry=1)
    except StoreError:
        failed = True
    assert failed or failing.count(verb) < nth
    store()
    _write(resume=True)
    assert _objects(faulty.inner) == wanted


# --- errors of the caller -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, GeneratorExit])
@pytest.mark.parametrize("target", ["folder", "remote", "pair"])
def test_an_exception_in_the_block_publishes_no_index(
    tmp_path: Path, store: Store, error: type[BaseException], target: str
) -> None:
    """Ctrl-C, exit, or an error of the source: the exception passes, and resume is whole."""
    inner = store().inner
    out: Any = {
        "folder": tmp_path / "out",
        "remote": "faulty://x",
        "pair": (tmp_path / "out", "faulty://x"),
    }[target]

    def source() -> Iterator[dict[str, Any]]:
        yield from SAMPLES[:50]
        raise error

    with pytest.raises(error):
        _write(out, source(), keep_local=target == "pair")
    assert not (tmp_path / "out/index.json").exists()
    assert "index.json" not in _objects(inner)
    assert _write(out, resume=True, keep_local=target == "pair") > 0
    for url in [tmp_path / "out"] * (target != "remote") + ["faulty://x"] * (target != "folder"):
        assert _read(str(url)) == SAMPLES


def test_an_error_in_a_thread_ends_the_wait_for_a_buffer() -> None:
    """The main thread waits for shards that are stuck; when they fail, it learns why at once."""
    reached = threading.Event()

    class _Gate(MemoryStore):
        """A store whose first shard waits until the writer must be waiting for a buffer."""

        def put(self, key: str, buffers: Any, *, if_absent: bool = False) -> Any:
            if key.startswith("shard."):
                reached.wait(240)
                raise StoreError("the connection was cut (scripted)")
            return super().put(key, buffers, if_absent=if_absent)

    gate = _Gate()
    register_store("faulty", lambda _: gate)
    written = 0
    with (  # noqa: PT012 - whichever write it is
        pytest.raises(StoreError, match="was cut"),
        MDSWriter(out="faulty://x", columns=COLUMNS, size_limit=400, max_workers=1) as writer,
    ):
        take = writer._streaming_engine._run.finisher._pool.take  # type: ignore[union-attr]

        def watched(*, timeout: float) -> Any:
            body = take(timeout=0)
            if body is None:
                reached.set()
            return body or take(timeout=timeout)

        writer._streaming_engine._run.finisher._pool.take = watched  # type: ignore[union-attr,method-assign]
        for sample in SAMPLES * 100:
            writer.write(sample)
            written += 1
    assert reached.is_set()
    assert written < len(SAMPLES) * 100


def test_a_caught_error_of_a_thread_does_not_let_finish_succeed(store: Store) -> None:
    """Whoever goes on after an error is told again, at every call, and gets no index."""
    faulty = store(Fault(_BROKEN, verb="put", key=".writing/00000.json", times=None))
    writer = MDSWriter(out="faulty://x", columns=COLUMNS, size_limit=400, max_workers=1)
    refused = 0
    for sample in SAMPLES * 100:
        try:
            writer.write(sample)
        except (StoreError, RuntimeError):
            refused += 1
    assert refused > 0
    with pytest.raises((StoreError, RuntimeError)):
        writer.finish()
    assert "index.json" not in _objects(faulty.inner)


def test_an_abort_does_not_wait_for_pauses_between_tries(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cancel_future_jobs` ends even if the next try would come in a day."""
    monkeypatch.setattr(_output, "_FIRST_PAUSE_SECONDS", 86400.0)
    store(Fault(_BROKEN, verb="put", key="shard.*", times=None))
    writer = MDSWriter(out="faulty://x", columns=COLUMNS, size_limit=400, max_workers=1, retry=5)
    writer.write_batch({name: [sample[name] for sample in SAMPLES[:8]] for name in COLUMNS})
    writer.cancel_future_jobs()


def test_slow_puts_in_any_order_give_the_same(store: Store, wanted: dict[str, bytes]) -> None:
    """Shards that are done out of order are journalled and indexed in order."""
    faults = [Fault(Delay(0.02), verb="put", key=f"shard.0000{i}.mds") for i in (0, 2, 5)]
    faulty = store(*faults)
    _write(max_workers=4)
    assert _objects(faulty.inner) == wanted


# --- pairs ----------------------------------------------------------------------------------------


def test_a_pair_whose_remote_holds_a_data_set_is_not_mixed_with_it(
    tmp_path: Path, store: Store, wanted: dict[str, bytes]
) -> None:
    """An empty folder does not hide that the URL is taken; exist_ok says to delete it."""
    faulty = store()
    _write()
    before = _objects(faulty.inner)
    for resume in (False, True):
        with pytest.raises(OutputNotEmptyError, match="finished data set"):
            _write((tmp_path / "out", "faulty://x"), SAMPLES[:5], keep_local=True, resume=resume)
    assert _objects(faulty.inner) == before
    _write((tmp_path / "out", "faulty://x"), keep_local=True, exist_ok=True)
    assert _objects(faulty.inner) == wanted


@pytest.mark.parametrize("key", ["index.json", "checksums.xxh128", "shard.00004.mds"])
def test_a_pair_is_finished_on_both_sides_or_not_at_all(
    tmp_path: Path, store: Store, wanted: dict[str, bytes], key: str
) -> None:
    """The remote refuses: the folder does not look finished, and resume completes both."""
    faulty = store(Fault(_BROKEN, verb="put", key=key, times=None))
    with pytest.raises(StoreError):
        _write((tmp_path / "out", "faulty://x"), keep_local=True)
    assert not (tmp_path / "out/index.json").exists()
    store()
    _write((tmp_path / "out", "faulty://x"), keep_local=True, resume=True)
    assert _objects(faulty.inner) == _objects(open_store(tmp_path / "out")) == wanted


def test_an_append_that_is_dropped_leaves_no_index_without_its_shards(
    tmp_path: Path, store: Store
) -> None:
    """The remote had the new index, the folder not yet: dropping the append restores the old."""
    store()
    pair: Any = (tmp_path / "out", "faulty://x")
    _write(pair, SAMPLES[:30], keep_local=True)
    old = (tmp_path / "out/index.json").read_bytes()

    class _StopError(Exception):
        pass

    with pytest.MonkeyPatch.context() as patch:

        def stop(where: Any, key: str, buffers: Any) -> None:
            if key == "index.json" and where is not faulty:
                raise _StopError
            put_checked(where, key, buffers)

        patch.setattr(_output, "put_checked", stop)
        faulty = store()
        with pytest.raises(_StopError):
            _write(pair, SAMPLES, keep_local=True, append=True)
    assert (tmp_path / "out/index.json").read_bytes() == old
    assert faulty.get("index.json") != old
    killed = store(Fault(Raise(StoreError("stop")), verb="delete", key="shard.*", nth=2))
    with pytest.raises(StoreError):
        _write(pair, SAMPLES[:3], keep_local=True, append=True, retry=1)
    assert killed.inner.get("index.json") == old
    assert _read() == SAMPLES[:30]
    store()
    _write(pair, SAMPLES[:3], keep_local=True, append=True)
    assert _read() == _read(str(tmp_path / "out")) == [*SAMPLES[:30], *SAMPLES[:3]]
    sums = (tmp_path / "out/checksums.xxh128").read_text().splitlines()
    assert len(sums) == load_index(tmp_path / "out").num_shards
