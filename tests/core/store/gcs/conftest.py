"""Servers for these tests, and an environment without anybody's credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.gcs import emulator, keyed
from tests.servers.gcs_rules import GoogleRules
from tests.servers.web import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.gcs import Emulator, KeyedServer

_VARIABLES = (
    "GCS_KEY",
    "GCS_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "STORAGE_EMULATOR_HOST",
)


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the machine's owner have nothing to do with it."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr("streaming_core._store._gcs._tokens._identities", {})


@pytest.fixture(scope="session")
def emulated() -> Iterator[Emulator]:
    """Return gcp-storage-emulator."""
    with emulator() as server:
        yield server


@pytest.fixture(scope="session")
def keyed_server() -> Iterator[KeyedServer]:
    """Return moto behind Google's dialect of S3."""
    with keyed() as server:
        yield server


@pytest.fixture
def rules() -> Iterator[GoogleRules]:
    """Return a server that follows the reference, at `rules.url`."""
    rules = GoogleRules()
    with WebServer(answer=rules.answer) as web:
        rules.url = web.url
        yield rules
