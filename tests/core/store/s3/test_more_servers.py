"""The contract, uploads and data sets on two stores that are no emulators: Ceph and Swift.

`make test-all` installs them; they take long to start, and other tests have quicker servers.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.ceph import ceph
from tests.servers.swift import swift

from streaming_core import MDSWriter, StreamingDataset
from streaming_core._store._s3 import S3Store
from streaming_core.errors import AccessDeniedError, AlreadyExistsError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.s3 import S3Server

_LARGE = os.urandom(1 << 20) * 20
"""More than goes in one request."""


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return Ceph's gateway."""
    with ceph(tmp_path_factory.mktemp("ceph")) as server:
        yield server


@pytest.fixture(scope="session")
def swift_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return Swift."""
    with swift(tmp_path_factory.mktemp("swift")) as server:
        yield server


def _store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """Return an empty folder, with keys from the environment: a pickle would lose them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.keys["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.keys["secret_access_key"])
    return S3Store.at(f"s3://{server.bucket()}/deep/folder ä", {"endpoint_url": server.url})


@pytest.mark.server
@pytest.mark.xdist_group("ceph")
class TestCeph(MarkedContract):
    """A folder of a bucket of Ceph's gateway."""

    num_overwrites = 20

    @pytest.fixture
    def store(self, ceph_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
        """Return an empty folder."""
        return _store(ceph_server, monkeypatch)


@pytest.mark.server
@pytest.mark.xdist_group("swift")
class TestSwift(MarkedContract):
    """A folder of a bucket of Swift."""

    num_overwrites = 20
    unsupported: ClassVar = {
        "create-only-race": "Swift has no condition, so the store looks before it puts",
        "overwrite-while-read": "Swift removes the old file of an object that is being opened",
    }

    @pytest.fixture
    def store(self, swift_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
        """Return an empty folder."""
        return _store(swift_server, monkeypatch)


_BOTH = [
    pytest.param(name, marks=[pytest.mark.server, pytest.mark.xdist_group(name)])
    for name in ("ceph", "swift")
]


@pytest.fixture(params=_BOTH)
def server(request: pytest.FixtureRequest) -> S3Server:
    """Return each of the servers."""
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


def test_a_data_set_is_written_and_streamed(server: S3Server, tmp_path: Path) -> None:
    """In shards of one request and in those of several parts, and read by ranges as well."""
    options = server.options()
    samples = [{"id": number, "body": _LARGE[: 1 << 20]} for number in range(40)]
    for size_limit in (1 << 20, 18 << 20):
        out = f"s3://{server.bucket()}/some/set"
        with MDSWriter(
            out=out,
            columns={"id": "int", "body": "bytes"},
            size_limit=size_limit,
            storage_options=options,
        ) as writer:
            for sample in samples:
                writer.write(sample)
        dataset = StreamingDataset(
            remote=out,
            local=tmp_path / str(size_limit),
            storage_options=options,
            shuffle=True,
            batch_size=1,
        )
        assert dataset[37] == samples[37]
        assert sorted(dataset, key=lambda sample: int(sample["id"])) == samples


def test_a_large_object_leaves_nothing_unfinished(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it is put nor when that fails; what a killed process left is removed."""
    bucket = server.bucket()
    store = S3Store.at(f"s3://{bucket}/folder", server.options())
    store.put("a", [memoryview(_LARGE)])
    assert store.get("a") == _LARGE
    assert store.abort_uploads() == 0
    with monkeypatch.context() as patch:
        patch.setattr("streaming_core._store._s3._upload.completion", _raising)
        patch.setattr("streaming_core._store._s3._upload._give_up", lambda *_: None)
        with pytest.raises(StoreError):
            store.put("b", [memoryview(_LARGE)])
    assert store.abort_uploads("other") == 0
    assert store.abort_uploads() == 1
    with monkeypatch.context() as patch:
        patch.setattr("streaming_core._store._s3._upload.completion", _raising)
        with pytest.raises(StoreError):
            store.put("b", [memoryview(_LARGE)])
    assert store.abort_uploads() == 0
    assert [info.key for info in store.list()] == ["a"]


def _raising(*_: object) -> bytes:
    raise OSError("scripted")


def test_create_only_holds_for_large_objects_and_says_where_it_is_a_look(
    server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What is there stays, whatever the store can do; what it cannot is told once."""
    store = S3Store.at(f"s3://{server.bucket()}/folder", server.options())
    with caplog.at_level(logging.WARNING, "streaming_core.store"):
        for body in (b"small", _LARGE):
            key = str(len(body))
            store.put(key, [body], if_absent=True)
            with pytest.raises(AlreadyExistsError, match=key):
                store.put(key, [b"other", body], if_absent=True)
            assert store.get(key) == body
    told = [record for record in caplog.records if "cannot create only" in record.message]
    assert len(told) == (server.keys["access_key_id"] == "testing:testing")


def test_a_wrong_secret_is_refused(server: S3Server) -> None:
    """At once, as `AccessDeniedError`, and without the secret in it."""
    bucket = server.bucket()
    wrong = "another-secret"
    for change in ({"secret_access_key": wrong}, {"access_key_id": "nobody:nobody"}):
        store = S3Store.at(f"s3://{bucket}", server.options(**change))
        for act in (lambda s: s.get("a"), lambda s: s.put("a", [b"x"]), lambda s: [*s.list()]):
            with pytest.raises(AccessDeniedError) as caught:
                act(store)
            assert wrong not in str(caught.value)
