"""The contract of stores, kept on two servers that speak S3."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.s3 import replaced_objects_stay

from streaming_core import open_store
from streaming_core._store._s3 import S3Store
from streaming_core.errors import AccessDeniedError

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from tests.servers.s3 import S3Server

    from streaming_core._store import Store


class TestMoto(MarkedContract):
    """A folder of a bucket of moto, by environment: a pickle on a disk would lose the keys."""

    num_overwrites = 20

    def test_a_reader_never_sees_a_mixture(self, store: Store) -> None:
        """While one thread overwrites, another always reads one whole version."""
        with replaced_objects_stay():
            super().test_a_reader_never_sees_a_mixture(store)

    @pytest.fixture
    def store(self, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
        """Return an empty folder."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("S3_ENDPOINT_URL", moto_server.url)
        store = open_store(f"s3://{moto_server.bucket()}/some folder/ä")
        assert isinstance(store, S3Store)
        return store


@pytest.mark.xdist_group("localstack")
@pytest.mark.server
class TestLocalStack(MarkedContract):
    """A folder of a bucket of LocalStack, with keys from a function."""

    num_overwrites = 20

    @pytest.fixture
    def store(self, local_server: S3Server) -> S3Store:
        """Return an empty folder."""
        return S3Store.at(f"s3://{local_server.bucket()}/deep/folder", _Options(local_server.url))


class _Options:
    """A function of options that pickles."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self) -> dict[str, str]:
        return {
            "endpoint_url": self.url,
            "access_key_id": "testing",
            "secret_access_key": "secret",
        }


def _read(store: S3Store, answers: Queue[bytes]) -> None:
    answers.put(store.get("a"))


@pytest.mark.process
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_started_process_gets_the_secrets_and_a_disk_does_not(
    store: S3Store, method: str
) -> None:
    """A worker that `multiprocessing` starts reads at once; a pickle elsewhere has no secret."""
    store.put("a", [b"body"])
    context: Any = multiprocessing.get_context(method)
    answers: Queue[bytes] = context.Queue()
    process = context.Process(target=_read, args=(store, answers))
    process.start()
    assert answers.get(timeout=60) == b"body"
    process.join(60)
    assert process.exitcode == 0
    pickled = pickle.dumps(store)
    assert b"testing" not in pickled
    copy: S3Store = pickle.loads(pickled)
    assert copy == store
    with pytest.raises(AccessDeniedError, match=r"access_key_id.*function.*environment"):
        copy.get("a")


def test_public_data_need_no_keys(moto_server: S3Server) -> None:
    """What was put for all to read is read without a signature; the rest is refused."""
    bucket = moto_server.bucket()
    acl = {"canned_acl": "public-read"}
    S3Store.at(f"s3://{bucket}", moto_server.options(**acl)).put("open", [b"body"])
    S3Store.at(f"s3://{bucket}", moto_server.options()).put("closed", [b"body"])
    for options in ({}, {"anonymous": True}):
        store = S3Store.at(f"s3://{bucket}", {"endpoint_url": moto_server.url, **options})
        assert store.get("open") == b"body"
        with pytest.raises(AccessDeniedError, match="not signed"):
            store.get("closed")
