"""The whole store contract, on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.store.contract import MarkedContract

from streaming_core._store import Store, open_store

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient
    from tests.servers.azure import Azurite

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("azurite")]


class TestAccountKey(MarkedContract):
    """A container, with a key from the environment, so that copies by pickle have it."""

    @pytest.fixture
    def store(
        self, emulator: Azurite, container: ContainerClient, monkeypatch: pytest.MonkeyPatch
    ) -> Store:
        """Return a new container's store."""
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", emulator.connection_string)
        return open_store(f"az://{container.container_name}")


class TestSignedUrl(MarkedContract):
    """A folder of a container, with a SAS that a function returns."""

    @pytest.fixture
    def store(
        self, emulator: Azurite, container: ContainerClient, monkeypatch: pytest.MonkeyPatch
    ) -> Store:
        """Return the store of a folder beside which other objects lie."""
        sas = emulator.sas(container.container_name, "rwdl")
        container.upload_blob("beside", b"other")
        container.upload_blob("folder/within-not", b"other")
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", sas)
        monkeypatch.setenv("AZURE_ACCOUNT_NAME", emulator.account)
        return open_store(
            f"azure://{emulator.account}/{container.container_name}/folder/within",
            {"endpoint_url": emulator.endpoint},
        )
