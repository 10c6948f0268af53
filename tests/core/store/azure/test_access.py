"""Keys, signatures and nobody in particular, as the emulator judges them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import open_store
from streaming_core.errors import AccessDeniedError, ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.storage.blob import ContainerClient
    from tests.servers.azure import Azurite

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("azurite")]

_LARGE = bytes(17 << 20)


@pytest.mark.essential
def test_a_wrong_key_is_denied(emulator: Azurite, container: ContainerClient) -> None:
    """Every verb says `AccessDeniedError`, with the place and without the key."""
    options = {
        "endpoint_url": emulator.endpoint,
        "account_name": emulator.account,
        "account_key": "d3Jvbmcta2V5",
    }
    store = open_store(f"az://{container.container_name}", options)
    verbs: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: store.get_ranges("a", [(0, 4)]),
        lambda: list(store.list()),
        lambda: store.put("a", [b"body"]),
        lambda: store.put("a", [_LARGE]),
        lambda: store.delete("a"),
    ]
    for verb in verbs:
        with pytest.raises(AccessDeniedError, match=container.container_name) as caught:
            verb()
        assert "d3Jvbmcta2V5" not in str(caught.value)


def test_nobody_is_told_how_to_be_somebody(emulator: Azurite, container: ContainerClient) -> None:
    """A request without credentials that is refused says where they could come from."""
    container.upload_blob("a", b"body")
    options = {"endpoint_url": emulator.endpoint, "anonymous": True}
    store = open_store(f"az://{container.container_name}", options)
    for verb in (lambda: store.get("a"), lambda: store.head("a"), lambda: list(store.list())):
        with pytest.raises(AccessDeniedError, match="AZURE_STORAGE_CONNECTION_STRING"):
            verb()


def test_public_containers_need_nobody(emulator: Azurite, container: ContainerClient) -> None:
    """What everybody may read is read without credentials."""
    container.upload_blob("a", b"body")
    container.set_container_access_policy({}, public_access="container")
    options = {"endpoint_url": emulator.endpoint, "anonymous": True}
    store = open_store(f"az://{container.container_name}", options)
    assert store.get("a") == b"body"
    assert [info.key for info in store.list()] == ["a"]
    with pytest.raises(ObjectNotFoundError):
        store.get("b")


@pytest.mark.essential
def test_a_signature_allows_what_it_says(emulator: Azurite, container: ContainerClient) -> None:
    """A SAS that reads does not write, and no error shows it."""
    container.upload_blob("a", b"body")
    sas = emulator.sas(container.container_name, "rl")
    options = {"endpoint_url": emulator.endpoint, "sas_token": f"?{sas}"}
    store = open_store(f"az://{container.container_name}", options)
    assert (store.get("a"), [info.key for info in store.list()]) == (b"body", ["a"])
    secret = sas.rpartition("sig=")[2]
    with pytest.raises(AccessDeniedError) as caught:
        store.put("b", [b"body"])
    for shown in (str(caught.value), repr(caught.value), repr(store), store.url):
        assert secret not in shown
        assert "sig=" not in shown


def test_an_expired_signature_is_renewed_once(
    emulator: Azurite, container: ContainerClient
) -> None:
    """Eight threads that are refused at one moment cause one call of the function."""
    container.upload_blob("a", b"body")
    signed = [emulator.sas(container.container_name, "r", hours=hours) for hours in (-1, 1)]
    calls: list[str] = []

    def options() -> dict[str, str]:
        calls.append(signed[min(len(calls), 1)])
        return {"endpoint_url": emulator.endpoint, "sas_token": calls[-1]}

    store: Any = open_store(f"az://{container.container_name}", options)
    start = threading.Barrier(8)

    def read(_: int) -> bytes:
        start.wait(60)
        body: bytes = store.get("a")
        return body

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [b"body"] * 8
    assert calls == signed


def test_a_signature_that_stays_expired_is_denied(
    emulator: Azurite, container: ContainerClient
) -> None:
    """Where there is no other the error says that the time is over."""
    sas = emulator.sas(container.container_name, "r", hours=-1)
    options = {"endpoint_url": emulator.endpoint, "sas_token": sas}
    with pytest.raises(AccessDeniedError, match=r"40[13]"):
        open_store(f"az://{container.container_name}", options).get("a")
