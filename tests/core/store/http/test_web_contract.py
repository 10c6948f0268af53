"""The store contract on web servers: the one of this project's tests, and nginx."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.nginx import Nginx, nginx
from tests.servers.web import WebServer

from streaming_core._store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from streaming_core._store import Store

_NO_LIST = {"list": "web servers have no listing that all agree on"}


@pytest.mark.essential
class TestMemory(MarkedContract):
    """Files in the server's memory."""

    unsupported = _NO_LIST

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Return a folder of a server that has nothing."""
        with WebServer() as server:
            yield open_store(f"{server.url}/data%20set")


@pytest.mark.slow
class TestFolder(MarkedContract):
    """Files in a folder."""

    unsupported = _NO_LIST

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Return a folder of a server that has nothing."""
        with WebServer(tmp_path) as server:
            yield open_store(f"{server.url}/data")


@pytest.mark.slow
class TestWithoutRanges(MarkedContract):
    """A server that always sends the whole file."""

    unsupported = _NO_LIST

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Return a folder of a server that has nothing."""
        with WebServer(ranges=False) as server:
            yield open_store(f"{server.url}/data")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """Run one nginx for all tests of this file."""
    with nginx(tmp_path_factory.mktemp("nginx")) as running:
        yield running


@pytest.mark.server
class TestNginx(MarkedContract):
    """nginx with its WebDAV methods."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **_NO_LIST,
        "create-only-race": "nginx does not know If-None-Match on PUT",
        "etag-of-each-write": "nginx makes ETags of the size and the second",
    }
    num_overwrites = 20

    @pytest.fixture
    def store(self, server: Nginx, tmp_path: Path) -> Store:
        """Return a folder that no other test has."""
        return open_store(f"{server.url}/dav/{tmp_path.name}")
