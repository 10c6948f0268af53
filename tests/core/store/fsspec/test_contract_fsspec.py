"""The store contract on file systems of fsspec."""

from __future__ import annotations

import importlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.web import WebServer

from streaming_core._store import open_store
from streaming_core.errors import ObjectNotFoundError, RangeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from streaming_core._store import Store

pytest.importorskip("fsspec")


class _Steady(dict[str, Any]):
    """A dictionary that may change while one goes through it, as fsspec's memory does."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def items(self) -> Any:
        return self.copy().items()


class TestMemory(MarkedContract):
    """Objects in a dictionary of the process."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "shared-between-processes": "the objects live in this process"
    }

    @pytest.fixture
    def store(self, monkeypatch: pytest.MonkeyPatch) -> Store:
        """Return a store of a name that nobody has, in a memory of its own."""
        memory = importlib.import_module("fsspec.implementations.memory").MemoryFileSystem
        monkeypatch.setattr(memory, "store", _Steady())
        return open_store(f"fsspec+memory://{uuid.uuid4().hex}")


@pytest.mark.slow
class TestLocal(MarkedContract):
    """A folder of this machine."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """Return a store of a folder that is not there yet."""
        return open_store(f"fsspec+file://{tmp_path}/set")


@pytest.mark.slow
class TestFolder(MarkedContract):
    """A folder by fsspec's `dir`, which takes its place from the options."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """Return a store whose root is what the options say."""
        return open_store("dir://set", partial(dict, path=str(tmp_path), target_protocol="file"))


class TestWeb:
    """Reading by fsspec's HTTP client, which runs in a thread of its own."""

    @pytest.fixture
    def server(self) -> Iterator[WebServer]:
        """Return a web server with one file."""
        with WebServer() as server:
            server.files.put("set/part 0/ä%23.bin", bytes(range(256)) * 50_000)
            yield server

    def test_reads_by_ranges(self, server: WebServer) -> None:
        """Whole, by ranges and as a stream, the bytes are those of the server."""
        data = bytes(range(256)) * 50_000
        store = open_store(f"fsspec+{server.url}/set").child("part 0")
        key = "ä%23.bin"
        assert store.get(key) == data
        parts = store.get_ranges(key, [(5, 9), (-3, None), (4, 4), (1 << 20, 2 << 20)])
        assert parts == [data[5:9], data[-3:], b"", data[1 << 20 : 2 << 20]]
        assert parts.etag == store.head(key).etag != ""
        assert b"".join(map(bytes, store.stream(key, start=100))) == data[100:]
        assert max(entry.status for entry in server.log) == 206
        with pytest.raises(ObjectNotFoundError, match="absent"):
            store.get("absent")
        with pytest.raises(RangeError):
            store.get_ranges(key, [(0, 1 << 40)])
