"""What is sent without TLS, and which settings of the environment count."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.http.asking import OK, read
from tests.servers.raw import RawServer, read_request, saying
from tests.servers.tls import make_certificates
from tests.servers.web import Said, WebServer

from streaming_core import open_store
from streaming_core._store import is_final
from streaming_core.errors import SchemaError, StoreError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

_FAR = "http://far.example"
_STORES: dict[str, tuple[str, dict[str, Any]]] = {
    "web header": (_FAR, {"headers": {"Authorization": "Bearer secret"}}),
    "web key": (_FAR, {"headers": {"X-Api-Key": "secret"}}),
    "web password": ("http://user:secret@far.example", {}),
    "gcs": ("gs://bucket", {"endpoint_url": _FAR, "token": "secret"}),
    "hf": ("hf://datasets/org/name", {"endpoint_url": _FAR, "token": "secret"}),
    "databricks": ("dbfs:/Volumes/a/b/c", {"host": _FAR, "token": "secret"}),
    "azure token": (
        "az://container",
        {"endpoint_url": f"{_FAR}/account", "account_name": "account", "token": "secret"},
    ),
    "azure sas": (
        "az://container",
        {"endpoint_url": f"{_FAR}/account", "account_name": "account", "sas_token": "sig=secret"},
    ),
}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Return what a proxy hears that stands for all other machines."""
    found: list[bytes] = []

    def talk(connection: socket.socket, _: int) -> None:
        while said := read_request(connection):
            found.append(said)
            connection.sendall(OK)

    with RawServer(talk) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        yield found


@pytest.mark.parametrize("name", _STORES)
def test_secrets_are_not_sent_without_tls(heard: list[bytes], name: str) -> None:
    """The error names the option that permits it, and is not tried again."""
    url, options = _STORES[name]
    with pytest.raises((StoreError, SchemaError), match="allow_http=True") as caught:
        open_store(url, options).get("a")
    assert isinstance(caught.value, SchemaError) or is_final(caught.value)
    assert "secret" not in str(caught.value)
    assert not heard


def test_a_proxy_hears_no_secret_that_is_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, heard: list[bytes]
) -> None:
    """Plain text is safe within this machine; the way to the proxy is none of it."""
    for stores in _STORES.values():
        url, options = json.loads(json.dumps(stores).replace("far.example", "localhost:1"))
        with pytest.raises(StoreError, match=r"proxy 127\.0\.0\.1:\d+.*http_proxy.*allow_http"):
            open_store(url, options).get("a")
    assert not heard
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with WebServer(answer=lambda _: Said(200, b"body")) as server:
        assert open_store(server.url, {"headers": {"X-Api-Key": "secret"}}).get("a") == b"body"


def test_an_emulator_on_another_machine_is_another_machine(
    monkeypatch: pytest.MonkeyPatch, heard: list[bytes]
) -> None:
    """It gets no token unless that is allowed; the default account needs none there."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "far.example:80")
    with pytest.raises(StoreError, match="allow_http=True"):
        open_store("gs://bucket", {"token": "secret"}).get("a")
    assert not heard
    assert open_store("gs://bucket").get("a") == b"body"
    open_store("gs://bucket", {"token": "secret", "allow_http": True}).get("a")
    assert b"\r\nAuthorization: Bearer secret" in heard[1]


@pytest.mark.parametrize("name", ["web header", "web password", "gcs", "databricks", "azure token"])
def test_secrets_are_sent_without_tls_where_that_is_allowed(heard: list[bytes], name: str) -> None:
    """As it was said."""
    url, options = _STORES[name]
    open_store(url, {**options, "allow_http": True}).get("a")
    assert b"\r\nAuthorization: B" in heard[0]


def test_what_is_no_secret_needs_no_tls(heard: list[bytes]) -> None:
    """Public files, and signatures, which are of use once."""
    assert open_store(_FAR).get("a") == b"body"
    keys = {"access_key_id": "id", "secret_access_key": "secret", "endpoint_url": _FAR}
    assert open_store("s3://bucket", keys).get("a") == b"body"
    assert b"AWS4-HMAC-SHA256" in heard[1]


def test_whether_http_is_allowed_is_true_or_false() -> None:
    """A text, as environments have it, would always be true."""
    with pytest.raises(SchemaError, match="allow_http: expected True or False, got 'false'"):
        open_store(_FAR, {"allow_http": "false"})


def test_a_redirect_from_https_to_http_is_refused(
    monkeypatch: pytest.MonkeyPatch, heard: list[bytes], tmp_path: Path
) -> None:
    """Unless it is allowed, or leads to this machine."""
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    places = [f"{_FAR}/b"]
    with (
        WebServer() as plain,
        WebServer(
            tls=certificates.server_context(),
            answer=lambda _: Said(302, headers={"Location": places[0]}),
        ) as server,
    ):
        options = {"ca_file": str(certificates.ca_file)}
        with pytest.raises(StoreError, match=r"https://.* to http://far\.example.*allow_http=True"):
            open_store(server.url, options).get("a")
        assert not heard
        assert open_store(server.url, {**options, "allow_http": True}).get("a") == b"body"
        plain.files.put("b", b"here")
        places[0] = f"{plain.url}/b"
        assert open_store(server.url, options).get("a") == b"here"


def test_the_authorities_of_amazon_are_for_s3_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other services trust whom they trusted before."""
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.ca_file))
    with WebServer(
        tls=certificates.server_context(), answer=lambda _: Said(200, b"body")
    ) as server:
        with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
            open_store(server.url).get("a")
        options = {"endpoint_url": server.url, "anonymous": True}
        assert open_store("s3://bucket", options).get("a") == b"body"


@pytest.mark.parametrize("name", ["all_proxy", "ALL_PROXY"])
def test_a_proxy_for_all_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Where none is named for the scheme."""
    with RawServer(saying(OK)) as proxy:
        monkeypatch.setenv(name, proxy.url)
        assert read(f"{_FAR}/a") == (200, b"body")


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy", "ALL_PROXY"])
def test_a_proxy_that_cannot_be_used_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Going past it would not be what was wanted."""
    monkeypatch.setenv(name, "socks5://127.0.0.1:1080")
    with pytest.raises(StoreError, match="proxy of the kind 'socks5'") as caught:
        open_store(_FAR).get("a")
    assert is_final(caught.value)


@pytest.mark.parametrize("network", ["127.0.0.0/8", "10.0.0.0/8, 127.0.0.1/16"])
def test_networks_are_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    """As curl does it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with WebServer(answer=lambda _: Said(200, b"body")) as server:
        monkeypatch.setenv("no_proxy", network)
        assert read(f"{server.url}/a") == (200, b"body")
        monkeypatch.setenv("no_proxy", "10.0.0.0/8")
        with pytest.raises(StoreError, match="through the proxy"):
            open_store(server.url).get("b")
        monkeypatch.setenv("no_proxy", "127.0.0.0/99")
        with pytest.raises(StoreError, match="no_proxy: expected a network"):
            open_store(server.url).get("a")
