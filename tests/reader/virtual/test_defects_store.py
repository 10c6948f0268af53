"""Storage: credentials, requests and faults that torch-dataloader-utils and EasyData stumble over.

What both do here was seen by running them: see `docs/comparison-any-format.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.virtual.defects import ids_of, made, none_lost, ranks_of, write_files
from tests.servers.faults import Cut, Latency, Reset, Stall, Status
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

from streaming_core.errors import AccessDeniedError, StoreError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.servers.faults import Fault, Rule

_ROWS = 10_000
_TIMEOUT_SECONDS = 4.0
_TOKEN = "Bearer let-me"  # noqa: S105 - of a server of this test


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of ten thousand rows in many row groups."""
    return write_files(tmp_path_factory.mktemp("rows") / "rows", [_ROWS], group=1000)


@pytest.fixture(autouse=True)
def _groups_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a unit be one row group, however small, so that there are many requests."""
    monkeypatch.setattr("streaming_core._virtual._kinds._packing._FEW_BYTES", 0)


def _private(asked: Asked) -> Said | None:
    return None if asked.headers.get("authorization") == _TOKEN else Said(401, b"who are you?")


@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.process)])
def test_files_that_need_credentials_are_read_like_others(
    folder: Path, tmp_path: Path, several: bool
) -> None:
    """Footers and rows are asked for with them, so that ranks share row groups as ever.

    torch-dataloader-utils looks at footers without, and then gives the whole file to one rank.
    EasyData lists without, and fails.
    """
    options: dict[str, Any] = {"storage_options": {"headers": {"Authorization": _TOKEN}}}
    with WebServer(folder, answer=_private) as server:
        url = f"{server.url}/part-00.parquet"
        if several:
            loaders = [made(url, local=tmp_path / "one", num_workers=2, **options)]
        else:
            loaders = ranks_of(url, 2, local=tmp_path / "two", **options)
        parts = [ids_of(loader) for loader in loaders]
        assert [len(part) for part in parts] == [_ROWS // len(parts)] * len(parts)
        none_lost([number for part in parts for number in part], range(_ROWS))
        assert 401 not in {logged.status for logged in server.log}
        with pytest.raises((AccessDeniedError, StoreError), match="401"):
            made(url, local=tmp_path / "none")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_second_epoch_asks_for_nothing(folder: Path, tmp_path: Path, workers: int) -> None:
    """Neither footers, nor rows that are there, nor whether the file is still the same.

    torch-dataloader-utils reads all footers again at each `set_epoch`, on each rank.
    """
    with WebServer(folder) as server:
        loader = made(
            f"{server.url}/part-00.parquet", local=tmp_path, shuffle=True, num_workers=workers
        )
        none_lost(ids_of(loader), range(_ROWS))
        asked = len(server.log)
        assert asked < 40
        for epoch in (1, 2):
            loader.set_epoch(epoch)
            none_lost(ids_of(loader), range(_ROWS))
        assert len(server.log) == asked


@pytest.fixture
def proxy(folder: Path) -> Generator[Proxy]:
    """Serve the file through a proxy."""
    with WebServer(folder) as server, Proxy(server.url) as found:
        yield found


_FAULTS: dict[str, Fault] = {
    "refused": Status(503),
    "throttled": Status(429, retry_after="1"),
    "cut": Cut(100),
    "reset": Reset(100),
    "no answer": Reset(None),
    "stalls in the middle": Stall(100),
    "stalls before": Stall(None),
    "late": Latency(_TIMEOUT_SECONDS * 1.5),
}
_LENGTHY = {"throttled", "stalls in the middle", "stalls before", "late"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "workers"),
    [
        *(
            pytest.param(fault, 0, marks=pytest.mark.slow) if fault in _LENGTHY else (fault, 0)
            for fault in _FAULTS
        ),
        pytest.param("refused", 2, marks=pytest.mark.process),
        pytest.param("cut", 2, marks=pytest.mark.process),
        pytest.param("stalls in the middle", 2, marks=pytest.mark.process),
    ],
)
def test_faults_are_got_over_without_a_lost_row(
    proxy: Proxy, tmp_path: Path, fault: str, workers: int
) -> None:
    """Whatever request they happen to: for the index, the file's size, its footer, or rows.

    Either library ends with an error at the first 503; EasyData too where a connection breaks, and
    where nothing comes for a minute it ends the epoch without a word.
    """
    hurt = _FAULTS[fault]

    def rules() -> list[Rule]:
        return [proxy.hurt(hurt, skip=skip, first=1, path="*.parquet") for skip in (0, 3, 6)]

    # Files are listed and looked at with the store's own patience, which a test need not wait out.
    done = [] if isinstance(hurt, Stall) else [*rules(), proxy.hurt(hurt, first=1, path="*.index")]
    loader = made(
        f"{proxy.url}/part-00.parquet",
        local=tmp_path,
        shuffle=True,
        num_workers=workers,
        # As long as any other request may take, unless the fault is that nothing comes.
        download_timeout=_TIMEOUT_SECONDS if isinstance(hurt, (Stall, Latency)) else 60,
        download_retry=4,
    )
    done = done or rules()
    none_lost(ids_of(loader), range(_ROWS))
    assert [rule.num_done for rule in done] == [1] * len(done)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_store_that_stays_silent_ends_no_epoch(
    proxy: Proxy, tmp_path: Path, workers: int
) -> None:
    """It is an error in the trainer's process, in time, and a later run has every row.

    EasyData takes silence for the end: of 400,000 rows it gave those that had come before.
    """
    options = {"local": tmp_path, "num_workers": workers}
    url = f"{proxy.url}/part-00.parquet"
    loader = made(url, download_timeout=_TIMEOUT_SECONDS, download_retry=1, **options)
    proxy.hurt(Stall(50), skip=3, methods=["GET"])
    seen: list[int] = []
    with pytest.raises((StoreError, WaitTimeoutError), match="part-00"):
        seen.extend(int(i) for batch in loader for i in batch["id"])
    assert len(seen) < _ROWS
    state = loader.state_dict()
    proxy.heal()
    again = made(url, **options)
    again.load_state_dict(state)
    assert len(ids_of(again)) <= _ROWS
    none_lost(ids_of(made(url, **options)), range(_ROWS))
