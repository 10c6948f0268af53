"""The contract, kept by both languages of Google Cloud Storage."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.s3 import replaced_objects_stay

from streaming_core._store import open_store
from streaming_core._store._gcs import GCSKeyStore, GCSStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.gcs import Emulator, KeyedServer
    from tests.servers.gcs_rules import GoogleRules

    from streaming_core._store import Store


def told(**options: str) -> dict[str, str]:
    """Return options; a function of them, because what is secret does not travel in any pickle."""
    return options


@pytest.mark.server
class TestEmulator(MarkedContract):
    """gcp-storage-emulator, found by the environment as all clients find it."""

    num_overwrites = 10
    unsupported: ClassVar[Mapping[str, str]] = {
        "create-only": "gcp-storage-emulator overlooks ifGenerationMatch; see TestReference",
    }

    @pytest.fixture
    def store(self, emulated: Emulator, monkeypatch: pytest.MonkeyPatch) -> Store:
        """Return a folder of a bucket of its own."""
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulated.url)
        store = open_store(f"gs://{emulated.bucket()}/a folder/ä")
        assert isinstance(store, GCSStore)
        return store


class TestReference(MarkedContract):
    """A server that keeps to the reference, with a token."""

    @pytest.fixture
    def store(self, rules: GoogleRules) -> Store:
        """Return a whole bucket, listed in pages of three."""
        rules.tokens, rules.page_size = {"a-token"}, 3
        options = partial(told, endpoint_url=rules.url, token="a-token")  # noqa: S106
        store = open_store("gcs://bucket", options)
        assert isinstance(store, GCSStore)
        return store


@pytest.mark.slow
class TestKeyed(MarkedContract):
    """The language of S3 with an HMAC key, before moto."""

    num_overwrites = 10
    unsupported: ClassVar[Mapping[str, str]] = {
        "create-only-race": "moto looks whether an object is there and puts it in two steps",
    }

    def test_a_reader_never_sees_a_mixture(self, store: Store) -> None:
        """While one thread overwrites, another always reads one whole version."""
        with replaced_objects_stay():
            super().test_a_reader_never_sees_a_mixture(store)

    @pytest.fixture
    def store(self, keyed_server: KeyedServer) -> Store:
        """Return a folder of a bucket of its own."""
        bucket = keyed_server.backend.bucket()
        options = partial(told, **keyed_server.options())
        store = open_store(f"gs://{bucket}/a folder/ä", options)
        assert isinstance(store, GCSKeyStore)
        return store
