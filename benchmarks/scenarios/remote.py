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
        *_clients(),
    )
    return Scenario(
        name="remote-epoch",
        title="A cold epoch from object storage",
        text=(
            "From constructing the data set with an empty cache to the last shuffled batch, by two "
            f"worker processes; shards of 64 MiB. {_SERVER}"
        ),
        # Some go on fetching after the end of an epoch, so that each run gets its own process.
        cases=_cases(("tokens", "blobs"), contenders, quick=False, num_workers=(2,), fresh=True),
        quick_cases=_cases(
            ("tokens", "blobs"), contenders, quick=True, num_workers=(2,), fresh=True
        ),
        baselines=(REFERENCE, LITDATA, _CLIENT),
        metric="fetched",
    )


def _clients(**options: int) -> tuple[Contender, ...]:
    """Return bare clients; what they bring is read by nobody."""
    work = "eight threads" if options else "four threads, shards into files; nothing is read"

    def peer(name: str, client: str, note: str) -> Contender:
        chosen = {"client": client, **options}
        return Contender(name, "remote_client", "peers", f"{work}; {note}", chosen)

    own = Contender(f"{OURS}, client alone", "remote_own_client", "ours", work, options)
    boto3 = peer(_CLIENT, "boto3", "`get_object` through a buffer that is used again")
    obstore = peer("obstore alone", "obstore", "`stream` or `get_range`")
    if options:
        return own, boto3, obstore
    return own, boto3, peer(f"{_CLIENT}, download_file", "download_file", "its own way"), obstore


def _ranges() -> Scenario:
    return Scenario(
        name="remote-ranges",
        title="Small ranges from object storage",
        text=f"16 KiB from random places of shards of 64 MiB, by bare clients. {_SERVER}",
        cases=_cases(("tokens",), _clients(ranges=5_000), quick=False, num_workers=(0,)),
        quick_cases=_cases(("tokens",), _clients(ranges=50), quick=True, num_workers=(0,)),
        baselines=(_CLIENT,),
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


SCENARIOS = (_epoch(), _first(), _ranges())
