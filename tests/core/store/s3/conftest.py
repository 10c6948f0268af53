"""Servers that speak S3, and an environment that has nothing to say about them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.core.store.s3.scripted import Scripted
from tests.servers.s3 import S3Server, localstack, moto
from tests.servers.web import WebServer

from streaming_core._store._s3 import S3Store, _credentials

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide what this machine's user has, and forget what another test has found."""
    for name in [*os.environ]:
        if name.startswith(("AWS_", "S3_", "R2_", "CLOUDFLARE_", "MOSAICML_STREAMING_")):
            monkeypatch.delenv(name)
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(_credentials._chain, "known", {})
    monkeypatch.setattr(_credentials._chain, "sessions", {})


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """Return moto, in this process."""
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return LocalStack."""
    with localstack(tmp_path_factory.mktemp("localstack")) as server:
        yield server


@pytest.fixture
def bucket(moto_server: S3Server) -> str:
    """Return an empty bucket of moto."""
    return moto_server.bucket()


@pytest.fixture
def store(moto_server: S3Server, bucket: str) -> S3Store:
    """Return an empty folder of an empty bucket of moto."""
    return S3Store.at(f"s3://{bucket}/folder", moto_server.options())


@pytest.fixture
def service() -> Iterator[Scripted]:
    """Return a server with the object `a` of four bytes in the bucket `data`."""
    with WebServer() as server:
        yield Scripted(server)
