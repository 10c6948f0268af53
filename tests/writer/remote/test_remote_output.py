"""Writing to remote stores: their options stay secret, and a busy one is waited for."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.web import Asked, Said, WebServer

from streaming_core import JSONWriter, MDSWriter, load_index, merge_index, register_store
from streaming_core._store import _resolve
from streaming_core.errors import SchemaError, StoreBusyError
from streaming_core.testing import Fault, FaultStore, MemoryStore, Raise
from streaming_writer import _output
from streaming_writer._options import Options
from streaming_writer._output import Output, resolve_targets

if TYPE_CHECKING:
    from pathlib import Path

_TOKEN = "Bearer very-secret"  # noqa: S105 - of a test
_OPTIONS = {"headers": {"Authorization": _TOKEN}}
_numbers = count()


def test_options_reach_the_store_of_the_url(tmp_path: Path) -> None:
    """The URL is opened with them, the folder beside it without; nobody is shown them."""
    stores = resolve_targets(
        (tmp_path, "http://127.0.0.1:9/a"), keep_local=True, part=3, storage_options=_OPTIONS
    )
    assert [store.url for store in stores] == [
        (tmp_path / "part-00003").as_uri(),
        "http://127.0.0.1:9/a/part-00003",
    ]
    assert "secret" not in repr(stores) + repr(Options(storage_options=_OPTIONS))
    for out in (str(tmp_path / "b"), "memory://options"):
        with pytest.raises(SchemaError, match="headers"):
            MDSWriter(out=out, columns={"a": "int"}, storage_options=_OPTIONS)


def test_options_are_in_nothing_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the index, nor in the journal, nor in a shard, of any writer."""
    store = MemoryStore(f"writing-{next(_numbers)}")
    given: list[Any] = []

    def opened(scheme: str, url: str, options: Any) -> Any:
        del scheme, url
        given.append(options)
        return store

    monkeypatch.setattr(_resolve, "_opened", opened)
    for kind in (MDSWriter, JSONWriter):
        with kind(out="cloud://x", columns={"a": "int"}, storage_options=_OPTIONS) as writer:
            for a in range(10):
                writer.write({"a": a})
            writer._streaming_engine.drain()
            kept = {info.key: store.get(info.key) for info in store.list()}
            assert any(key.startswith(".writing/") for key in kept)
            assert not [key for key, body in kept.items() if b"secret" in body]
        kept = {info.key: store.get(info.key) for info in store.list()}
        assert not [key for key, body in kept.items() if b"secret" in body]
        for key in kept:
            store.delete(key)
    assert given == [_OPTIONS, _OPTIONS]


def test_indexes_are_merged_with_options(tmp_path: Path) -> None:
    """Reading the parts and writing the index, with a listed part, as a web server cannot list."""
    for part in range(2):
        with MDSWriter(out=str(tmp_path), columns={"a": "int"}, part=part) as writer:
            writer.write({"a": part})
    refused = [0]

    def answer(asked: Asked) -> Said | None:
        if asked.headers.get("authorization") == _TOKEN:
            return None
        refused[0] += 1
        return Said(401)

    with WebServer(tmp_path, answer=answer) as server:
        parts = [f"{server.url}/part-{part:05d}" for part in range(2)]
        merge_index(parts, server.url, storage_options=_OPTIONS)
        assert refused == [0]
        assert load_index(server.url, storage_options=_OPTIONS).num_samples == 2
    assert load_index(tmp_path).num_samples == 2


# --- busy stores ----------------------------------------------------------------------------------


def _write(store: FaultStore, **options: Any) -> None:
    register_store("busy", lambda _: store)
    with MDSWriter(out="busy://x", columns={"a": "int"}, size_limit=300, **options) as writer:
        for a in range(200):
            writer.write({"a": a})


def test_a_busy_store_is_waited_for_however_few_tries_there_are() -> None:
    """Refusals are no failures: with a single try all is written, at the pace that is asked for."""
    inner = MemoryStore(f"busy-{next(_numbers)}")
    busy = StoreBusyError("slow down", retry_after=0.2)
    store = FaultStore(inner, [Fault(Raise(busy), verb="put", key="shard.00002.mds", times=3)])
    began = time.monotonic()
    _write(store, retry=1)
    assert time.monotonic() - began >= 0.6
    assert load_index("busy://x").num_samples == 200
    assert store.count("put", "shard.00002.mds") == 4


def test_a_store_that_stays_busy_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own refusal is raised when it has been waited for long enough, or the writer gives up."""
    monkeypatch.setattr(_output, "_BUSY_SECONDS", 1.0)
    busy = StoreBusyError("slow down")
    store = FaultStore(
        MemoryStore(f"busy-{next(_numbers)}"), [Fault(Raise(busy), verb="put", times=None)]
    )
    began = time.monotonic()
    with pytest.raises(StoreBusyError, match="slow down"):
        _write(store)
    assert time.monotonic() - began < 60
    output = Output([store], retry=3)
    output.give_up()
    before = store.count("put")
    with pytest.raises(StoreBusyError):
        output.put("a", [b"body"])
    assert store.count("put") == before + 1
