"""How often what opening needs is asked for: as often as users say, and no more after Ctrl-C."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from tests.core.virtual.tables import commit, position_deletes, sqlite_catalog
from tests.reader.virtual.defects import ids_of, made, write_files
from tests.servers.web import Asked, Said, WebServer

from streaming_core._store import Caller, LocalStore, RequestPolicy
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming_core._store import Buffer


class _Failing:
    """Answers so many reads of some bytes of a file, or every so-manieth, with an error."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked = self.every = 0

    def __call__(self, asked: Asked) -> Said | None:
        if asked.method != "GET" or "range" not in asked.headers:
            return None
        self.asked += 1
        fails = self.asked % self.every == 0 if self.every else self.asked <= self.failures
        return Said(500, b"not now") if fails else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a file of a thousand rows in ten row groups."""
    return write_files(tmp_path / "rows", [1000])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[str]:
    """Return where an Iceberg table is of which 3 of 1,000 rows are deleted."""
    with sqlite_catalog(tmp_path) as catalog:
        rows = pa.table({"id": pa.array(range(1000), pa.int64())})
        written = catalog.create_table("db.t", rows.schema, properties={"format-version": "2"})
        written.append(rows)
        (task,) = written.scan().plan_files()
        path = str(task.file.file_path)
        commit(written, position_deletes(written, [(path, row) for row in (1, 5, 7)]))
        yield written.metadata_location


@pytest.mark.parametrize("retry", [0, 1])
def test_footers_are_asked_for_as_often_as_is_said(
    folder: Path, tmp_path: Path, retry: int
) -> None:
    """One failure more than that is an error; not fewer."""
    for failures in (retry + 1, retry):
        failing = _Failing(failures)
        with WebServer(folder, answer=failing) as server:
            place, local = f"{server.url}/part-00.parquet", tmp_path / f"{failures}"
            if failures > retry:
                with pytest.raises(StoreError, match="500"):
                    made(place, local=local, download_retry=retry)
                assert failing.asked == failures
            else:
                assert ids_of(made(place, local=local, download_retry=retry)) == [*range(1000)]


@pytest.mark.parametrize("retry", [0, 1])
def test_what_filters_look_at_is_asked_for_as_often_as_is_said(
    folder: Path, tmp_path: Path, retry: int
) -> None:
    """The rows of files that are known already."""
    failing = _Failing(0)
    with WebServer(folder, answer=failing) as server:
        place, local = f"{server.url}/part-00.parquet", tmp_path / "local"
        made(place, local=local)
        failing.failures, failing.asked = retry + 1, 0
        options: dict[str, Any] = {"filters": [("text", "!=", "row 7")], "download_retry": retry}
        with pytest.raises(StoreError, match="500"):
            made(place, local=local, **options)
        assert failing.asked == retry + 1
        assert ids_of(made(place, local=local, **options)) == [*range(7), *range(8, 1000)]


@pytest.mark.parametrize("retry", [0, 1])
def test_deletes_of_a_table_are_asked_for_as_often_as_is_said(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry: int
) -> None:
    """Once for each try, not for each try of the whole table too."""
    asked: list[str] = []
    failures = retry + 1
    read = LocalStore.get_ranges

    def get_ranges(store: LocalStore, key: str, *more: Any, **options: Any) -> Sequence[Buffer]:
        asked.append(key)
        if len(asked) <= failures:
            msg = f"{key}: not now"
            raise StoreError(msg)
        return read(store, key, *more, **options)

    monkeypatch.setattr(LocalStore, "get_ranges", get_ranges)

    options: dict[str, Any] = {"format": "iceberg", "local": tmp_path / "local"}
    with pytest.raises(StoreError, match="not now"):
        made(table, **options, download_retry=retry)
    assert len(asked) == retry + 1
    gone = {1, 5, 7}
    found = ids_of(made(table, **options, download_retry=retry))
    assert found == [number for number in range(1000) if number not in gone]


def test_an_error_ends_what_waits_for_another_try() -> None:
    """Pauses double up to half a minute, and with many tries add up to much more."""
    failed = threading.Semaphore(0)

    def not_now() -> int:
        failed.release()
        msg = "not now"
        raise StoreError(msg)

    def act(item: int, call: Caller) -> int:
        if item:
            return call(not_now)
        for _ in range(7):
            assert failed.acquire(timeout=60)
        return 1 // item

    policy = RequestPolicy(1000, first_pause=30.0)
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        list(policy.in_order(act, range(8)))
    assert time.monotonic() - began < 15


_ENDS: Final = """
import threading
from streaming_core._store import RequestPolicy
from streaming_core.errors import StoreError
failed = threading.Event()
def not_now():
    failed.set()
    raise StoreError("not now")
def act(item, call):
    return call(not_now) if item else failed.wait(60)
for found in RequestPolicy(1000, first_pause=30.0).in_order(act, range(2)):
    raise RuntimeError("of the consumer")
"""


@pytest.mark.process
def test_a_script_ends_though_requests_wait_for_another_try() -> None:
    """The frame of an uncaught error keeps the generator; threads are joined while it does."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=100, check=False
    )
    assert "RuntimeError: of the consumer" in ended.stderr, ended.stderr
    assert "CancelledError" not in ended.stderr


def test_each_request_of_a_filter_is_tried_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails does not have the others made again, however many a file takes."""
    monkeypatch.setattr("streaming_core._virtual._model._STEP_BYTES", 1 << 12)
    rows = b"".join(b'{"id": %d, "text": "%x"}\n' % (n, n * n * n) for n in range(20_000))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(rows))
    failing = _Failing(0)
    with WebServer(tmp_path, answer=failing) as server:
        place, local = f"{server.url}/rows.jsonl.gz", tmp_path / "local"
        made(place, local=local, format="jsonl")
        failing.asked, failing.every = 0, 15
        loader = made(place, local=local, format="jsonl", filters=[("id", "<", 3)])
        assert failing.asked > 20
        failing.every = 0
        assert ids_of(loader) == [0, 1, 2]
