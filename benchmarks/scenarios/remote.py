"""How fast data comes from a store behind a network into a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _spec import Case, Contender, Scenario, Task
from scenarios.read import LITDATA, OURS, REFERENCE, SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SCENARIOS"]

_CLIENT = "boto3 alone"
_WEBDATASET = "webdataset"
_SERVER = (
    "The store is nginx on the same machine, whose processor's share is not counted; it answers at "
    "once or after 40 ms."
)


def _epoch() -> Scenario:
    options = {"method": "epoch"}
    contenders = (
        Contender(OURS, "remote_ours", "ours", "its own loader, py1e", options),
        Contender(REFERENCE, "remote_reference", "peers", "its own loader, py1e", options),
        Contender(LITDATA, "remote_lit", "peers", "its own loader, shuffled", options),
        Contender(
            _CLIENT,
            "remote_client",
            "peers",
            "four threads, `get_object` through a reused buffer into files; nothing is read",
            {"way": "get_object"},
        ),
        Contender(
            f"{_CLIENT}, download_file",
            "remote_client",
            "peers",
            "four threads, its own `download_file`; nothing is read",
            {"way": "download_file"},
        ),
    )
    return Scenario(
        name="remote-epoch",
        title="A cold epoch from object storage",
        text=(
            "From constructing the data set with an empty cache to the last shuffled batch, by two "
            f"worker processes; shards of 64 MiB. {_SERVER}"
        ),
        cases=_cases(("tokens", "blobs"), contenders, quick=False, num_workers=(2,)),
        quick_cases=_cases(("tokens", "blobs"), contenders, quick=True, num_workers=(2,)),
        baselines=(REFERENCE, LITDATA, _CLIENT),
        metric="fetched",
    )


def _first() -> Scenario:
    options = {"method": "first"}
    contenders = (
        Contender(OURS, "remote_ours", "ours", "its own loader, py1e", options),
        Contender(REFERENCE, "remote_reference", "peers", "its own loader, py1e", options),
        Contender(LITDATA, "remote_lit", "peers", "its own loader, shuffled", options),
        Contender(_WEBDATASET, "remote_wds", "peers", "its own loader, in order", options),
    )
    return Scenario(
        name="remote-first",
        title="The first batch from object storage",
        text=(
            "Seconds from constructing data set and loader with an empty cache until the first "
            "batch of 256 is there, in a new process that has imported all it needs. All but "
            f"webdataset shuffle. {_SERVER}"
        ),
        cases=_cases(("tokens",), contenders, quick=False, num_workers=(0, 2), fresh=True),
        quick_cases=_cases(("tokens",), contenders, quick=True, num_workers=(0, 2), fresh=True),
        baselines=(REFERENCE, LITDATA, _WEBDATASET),
        metric="seconds",
    )


def _cases(
    works: Sequence[str],
    contenders: tuple[Contender, ...],
    *,
    quick: bool,
    num_workers: Sequence[int],
    fresh: bool = False,
) -> tuple[Case, ...]:
    tasks = [
        Task(work, SIZES[work][quick], num_workers=workers, latency_ms=latency)
        for work in works
        for workers in num_workers
        for latency in (0, 40)
    ]
    return tuple(Case(task, contenders, fresh) for task in tasks)


SCENARIOS = (_epoch(), _first())
