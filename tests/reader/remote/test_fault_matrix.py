"""Whole epochs over every kind of server while the way there is bad in every way.

An epoch has exactly the right samples, or ends in time with an error that has a type; where faults
pass, no more than twice the requests of an undisturbed epoch are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from tests.reader.ranged.making import ONLY_BYTES
from tests.reader.remote.places import PLACES, SETS, Place, serving
from tests.servers.faults import (
    Cut,
    Dribble,
    Empty,
    Etag,
    Fault,
    Flip,
    Html,
    NoRange,
    OtherBytes,
    Reset,
    Slow,
    Stall,
    Status,
    Swallow,
    WrongRange,
)

from streaming_core import StreamingDataset
from streaming_core._store._http._connections import kept
from streaming_core.errors import ShardFetchError, StoreError

ErrorT = TypeVar("ErrorT", bound=BaseException)

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("fault-matrix")]

_SECONDS = 2.5
"""How long a request may bring nothing where that is what happens."""
_HEALTHY_SECONDS = 60.0
"""And where it is not, so that nobody waits for it on a busy machine."""
_BUSY = {"503", "429-for-an-hour"}
"""What says when to come again; who does before is not let through by ourselves."""
_DEADLINE_SECONDS = 50.0
_SHARD = "*shard.00003.mds"


class Way(NamedTuple):
    """A server, and how many requests an undisturbed epoch of each data set makes."""

    place: Place
    least: dict[str, int]


Everywhere = Callable[[Callable[[Way, Path], None]], None]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """Return every kind of server."""
    with ExitStack() as stack:
        found = {}
        for name in PLACES:
            place = stack.enter_context(serving(name, tmp_path_factory.mktemp(name)))
            least = {}
            for kind in SETS:
                place.heal()
                local = tmp_path_factory.mktemp("undisturbed")
                (_check_one_by_one if kind == "blobs" else _check)(place, kind, local)
                least[kind] = len(place.log)
            found[name] = Way(place, least)
        yield found


@pytest.fixture
def everywhere(ways: dict[str, Way], tmp_path: Path) -> Everywhere:
    """Return a function that does something at all servers at once, as most of it is waiting."""

    def act(what: Callable[[Way, Path], None]) -> None:
        errors = []
        with ThreadPoolExecutor(len(ways)) as pool:
            done = {name: pool.submit(what, way, tmp_path / name) for name, way in ways.items()}
            for name, future in done.items():
                error = future.exception()
                if error is not None:
                    error.add_note(f"at {name}")
                    errors.append(error)
        if errors:
            raise BaseExceptionGroup("not so everywhere", errors)

    kept.forget()  # what another test has left of a connection is not this one's
    for way in ways.values():
        way.place.heal()
    return act


def _dataset(place: Place, name: str, local: Path, **settings: Any) -> StreamingDataset:
    given = {
        "remote": f"{place.folder}/{name}",
        "storage_options": dict(place.options) or None,
        "batch_size": 4,
        "download_timeout": _HEALTHY_SECONDS,
        "download_retry": 2,
    }
    return StreamingDataset(local=str(local), **{**given, **settings})


def _read(dataset: StreamingDataset) -> None:
    """Read an epoch, which is right."""
    seen = []
    for sample in dataset:
        assert {*sample["body"]} == {sample["id"]}
        seen.append(sample["id"])
    assert sorted(seen) == list(range(dataset.num_samples))


def _check(place: Place, name: str, local: Path, **settings: Any) -> None:
    began = time.monotonic()
    _read(_dataset(place, name, local, **settings))
    assert time.monotonic() - began < _DEADLINE_SECONDS


def _check_one_by_one(place: Place, name: str, local: Path) -> None:
    """Read all samples in another order than they lie in, as far as is worth it by ranges."""
    dataset = _dataset(place, name, local)
    assert dataset._streaming_engine.catalogue.ranged is not None
    for origin in dataset._streaming_engine.catalogue.ranged._origins:
        origin._default = ONLY_BYTES  # however fast this machine is just now
        origin.renew()
    number = dataset.num_samples
    for at in range(number):
        wanted = at * 7 % number
        sample = dataset[wanted]
        assert (sample["id"], {*sample["body"]}) == (wanted, {wanted})
    assert any(passed.range and ".mds" in passed.target for passed in place.log)


# --- what passes ----------------------------------------------------------------------------------

_WAITS = [Stall(900), Stall()]
_MAY_MISS = {"500"}
"""What comes at random."""
_PASSING: dict[str, tuple[Fault, dict[str, Any]]] = {
    "cut": (Cut(900), {"path": "*.mds", "first": 3}),
    "reset": (Reset(900), {"path": "*.mds", "first": 3}),
    "reset-at-once": (Reset(), {"first": 2}),
    "stall": (Stall(900), {"path": _SHARD, "first": 1}),
    "silence": (Stall(), {"path": _SHARD, "first": 1}),
    "1-kb-per-second": (Slow(1024), {"path": _SHARD, "first": 1}),
    "crumbs": (Dribble(64), {}),
    "flip": (Flip(-20), {"path": _SHARD, "first": 1}),
    "others": (OtherBytes(), {"path": _SHARD, "first": 1}),
    "empty": (Empty(), {"path": _SHARD, "first": 1}),
    "page": (Html(), {"path": _SHARD, "first": 1}),
    "429": (Status(429, retry_after="0.3"), {"path": "*.mds", "first": 3}),
    "503": (Status(503, retry_after="0.3"), {"first": 3}),
    "500": (Status(500), {"chance": 0.1, "seed": 4}),
    "502": (Status(502), {"path": "*.mds", "every": 5}),
}


@pytest.mark.parametrize("name", _PASSING)
def test_what_passes_is_got_over(everywhere: Everywhere, name: str) -> None:
    """All samples come, once and right, for few requests in vain."""
    fault, which = _PASSING[name]
    settings = {"download_timeout": _SECONDS} if fault in _WAITS else {}

    def check(way: Way, local: Path) -> None:
        way.place.hurt(fault, **which)
        _check(way.place, "small", local, **settings)
        assert len(way.place.log) <= 2 * way.least["small"]
        assert name in _MAY_MISS or any(passed.faults for passed in way.place.log)

    everywhere(check)


@pytest.mark.parametrize(
    "fault", [WrongRange(), Etag(), NoRange(), Html(), Empty(), Reset(), Status(503)], ids=repr
)
def test_a_shard_that_breaks_off_is_whole_in_the_end(everywhere: Everywhere, fault: Fault) -> None:
    """The rest of it comes with another version, from elsewhere, as a page, or not at once."""

    def check(way: Way, local: Path) -> None:
        which: dict[str, Any] = {"path": "*.mds", "methods": ["GET"], "where": _is_large}
        for proxy in way.place.proxies:
            proxy.hurt(Cut(2_500_000), first=1, **which)
            proxy.hurt(fault, skip=1, first=1, **which)
        _check(way.place, "large", local)
        # Two of them were hurt.
        assert len(way.place.log) <= 2 * way.least["large"] + 2
        hurt = [passed.range for passed in way.place.log if fault in passed.faults]
        assert any(wanted.startswith("bytes=2") for wanted in hurt)

    everywhere(check)


def _is_large(_: str, target: str) -> bool:
    return "large" in target


@pytest.mark.parametrize("fault", [WrongRange(), Etag(), NoRange()], ids=repr)
@pytest.mark.parametrize("first", [2, None])
def test_ranges_that_are_others_are_not_taken_for_right(
    everywhere: Everywhere, fault: Fault, first: int | None
) -> None:
    """Who reads by ranges has the right samples, if need be from whole shards."""

    def check(way: Way, local: Path) -> None:
        way.place.hurt(fault, path="*.mds", first=first)
        _check_one_by_one(way.place, "blobs", local)
        assert first is None or len(way.place.log) <= 2 * way.least["blobs"]
        assert any(passed.range for passed in way.place.log if passed.faults)

    everywhere(check)


def test_credentials_that_have_run_out_are_replaced(everywhere: Everywhere) -> None:
    """The function that gives them is asked again, and the epoch goes on."""

    def check(way: Way, local: Path) -> None:
        place = way.place
        if place.denial is not None:
            place.hurt(place.denial)
        folder = place.private or place.folder
        _check(place, "small", local, remote=f"{folder}/small", storage_options=place.stale)
        assert len(place.log) <= 2 * way.least["small"]
        assert any(passed.status in {400, 401, 403} for passed in place.log)

    everywhere(check)


# --- what stays -----------------------------------------------------------------------------------

_STAYING: dict[str, Fault] = {
    "cut": Cut(900),
    "reset": Reset(),
    "silence": Stall(),
    "trickle": Slow(20),
    "flip": Flip(-20),
    "empty": Empty(),
    "page": Html(),
    "500": Status(500),
    "503": Status(503, retry_after="0.3"),
    "429-for-an-hour": Status(429, retry_after="3600"),
    "403": Status(403),
}
_ENDLESS = {"silence", "trickle", "503"}
"""What only a timeout ends."""


@pytest.mark.parametrize("name", _STAYING)
def test_what_stays_is_an_error_in_time(everywhere: Everywhere, name: str) -> None:
    """It has type and shard; when the way is good again, the same data set has all samples."""

    def check(way: Way, local: Path) -> None:
        place = way.place
        place.hurt(_STAYING[name], path=_SHARD)
        seconds = _SECONDS if name in _ENDLESS else _HEALTHY_SECONDS
        dataset = _dataset(place, "small", local, download_retry=1, download_timeout=seconds)
        error = _failed(dataset, ShardFetchError)
        if name not in _BUSY:  # then whichever comes next has to wait
            assert (error.shard, error.basename) == (3, "shard.00003.mds")
        place.heal()
        if name in _BUSY:
            dataset = _dataset(place, "small", local / "new")
        dataset.set_epoch(1)
        _read(dataset)

    everywhere(check)


def _failed(samples: Iterable[Any], kind: type[ErrorT]) -> ErrorT:
    """Return how reading fails, which is in time."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        list(samples)
    assert time.monotonic() - began < _DEADLINE_SECONDS
    return caught.value


@pytest.mark.parametrize("when", ["before", "after the index"])
def test_a_black_hole_is_an_error_in_time(everywhere: Everywhere, when: str) -> None:
    """No request is answered, from the beginning or from the first shard on."""

    def check(way: Way, local: Path) -> None:
        place = way.place

        def samples() -> Iterator[Any]:
            yield from _dataset(place, "small", local, download_retry=1, download_timeout=_SECONDS)

        if when == "before":
            place.hurt(Swallow())
            _failed(samples(), StoreError)
        else:
            place.hurt(Swallow(), path="*.mds")
            _failed(samples(), ShardFetchError)
        place.heal()
        _check(place, "small", local)

    everywhere(check)


def test_a_server_that_is_gone_is_an_error_in_time(everywhere: Everywhere) -> None:
    """Connections are refused: before the index, and between two shards."""

    def check(way: Way, local: Path) -> None:
        place = way.place
        with place.proxies[0].refusing(), pytest.raises(StoreError):
            _dataset(place, "small", local, download_retry=1)
        place.hurt(Stall(), path=_SHARD)
        dataset = _dataset(place, "small", local, download_retry=1)
        samples = iter(dataset)
        next(samples)
        with place.proxies[0].refusing():
            _failed(samples, ShardFetchError)
        place.heal()
        dataset.set_epoch(1)
        _read(dataset)

    everywhere(check)
