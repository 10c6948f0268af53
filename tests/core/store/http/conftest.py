"""What the tests of this folder share: a clean beginning, servers, and a fault proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.store.http.reads import BODY, PATIENT_SECONDS, STALL_SECONDS
from tests.servers.nginx import nginx
from tests.servers.proxy import Proxy
from tests.servers.web import WebServer

from streaming_core._store._http import WebStore
from streaming_core._store._http._connections import kept

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without connections of another test's server, and with nothing in the environment."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("all_proxy", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    kept.forget()
    yield
    kept.forget()


@pytest.fixture(scope="module")
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a server with one file: this project's, or nginx where a test asks for it."""
    if getattr(request, "param", "own") == "own":
        with WebServer() as server:
            server.files.put("dav/set/a", BODY)
            yield server.url
        return
    with nginx(tmp_path_factory.mktemp("nginx")) as running:
        (running.files / "set").mkdir()
        (running.files / "set" / "a").write_bytes(BODY)
        yield running.url


@pytest.fixture
def proxy(address: str) -> Iterator[Proxy]:
    """Stand before the server, and do nothing yet."""
    with Proxy(address) as running:
        yield running


@pytest.fixture
def store(proxy: Proxy) -> WebStore:
    """Return the server's files, through the proxy."""
    return WebStore.at(f"{proxy.url}/dav").with_timeout(PATIENT_SECONDS)


@pytest.fixture
def hasty(store: WebStore) -> WebStore:
    """Return the same files, soon tired of waiting."""
    return store.with_timeout(STALL_SECONDS)
