"""One emulator for all tests of this folder, and a fresh container for each."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.servers.azure import Azurite, azurite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.storage.blob import BlobServiceClient, ContainerClient


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Return a running emulator; all modules that use it run in one worker."""
    with azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture(scope="session")
def service(emulator: Azurite) -> Iterator[BlobServiceClient]:
    """Return Azure's own client of the emulator."""
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient.from_connection_string(emulator.connection_string) as client:
        yield client


@pytest.fixture
def container(service: BlobServiceClient) -> ContainerClient:
    """Return Azure's own client of a container that is new and empty."""
    return service.create_container(f"data-{uuid.uuid4().hex}")


@pytest.fixture(autouse=True)
def _no_ambient_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing in the environment that says who we are at Azure."""
    for name in (
        "AZURE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_ACCOUNT_ACCESS_KEY",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CONNECTION_STRING",
    ):
        monkeypatch.delenv(name, raising=False)
