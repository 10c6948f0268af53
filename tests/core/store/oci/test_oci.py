"""The store of Oracle's object storage, against one in this process that verifies signatures."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.oci import ObjectStorage
from tests.servers.ranged import said_json
from tests.servers.web import Said

from streaming_core import MDSWriter, StreamingDataset
from streaming_core._store import RequestPolicy, open_store
from streaming_core._store._oci import OciStore
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    MissingExtraError,
    ObjectNotFoundError,
    SchemaError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_URL = "oci://bucket@space/folder"
_LARGE = bytes(range(256)) * (17 * 4096 + 1)  # 17 MiB and a bit: more than one request takes


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    """Give a running service; its key takes a while to make."""
    with ObjectStorage() as running:
        yield running


@pytest.fixture(autouse=True)
def config(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a configuration as Oracle's tools leave it, and an empty bucket."""
    storage.objects.clear()
    storage.uploads.clear()
    storage.failing.clear()
    storage.public, storage.ahead = False, 0.0
    key, file = tmp_path / "key.pem", tmp_path / "config"
    key.write_text(storage.key())
    file.write_text(
        f"[DEFAULT]\nuser={storage.user}\nfingerprint={storage.fingerprint}\n"
        f"tenancy={storage.tenancy}\nregion=eu-frankfurt-1\nkey_file={key}\n"
    )
    for name in ("OCI_CLI_PROFILE", "OCI_CONFIG_PROFILE", "OCI_REGION", "OCI_CLI_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OCI_CLI_ENDPOINT", raising=False)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(file))
    return file


def _store(storage: ObjectStorage, **options: Any) -> OciStore:
    return OciStore.at(_URL, {"endpoint_url": storage.url, **options})


@pytest.mark.slow
class TestContract(MarkedContract):
    """The contract, every request signed."""

    @pytest.fixture
    def store(self, storage: ObjectStorage) -> OciStore:
        """Give the store of an empty folder."""
        return _store(storage)


# --- places ---------------------------------------------------------------------------------------


def test_url_round_trip() -> None:
    """`open_store` takes a store's URL back; the namespace may be an option."""
    store = open_store(_URL)
    assert open_store(store.url) == store
    assert open_store("oci://bucket/folder", {"namespace": "space"}) == store


def test_the_region_of_the_profile_says_where_to_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Option, environment and profile name it; without it the error says how."""
    for given in ({}, {"region": "eu-frankfurt-1"}):
        store = OciStore.at(_URL, given)
        assert store._gate.origin.text == "https://objectstorage.eu-frankfurt-1.oraclecloud.com"
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(SchemaError, match="needs a region"):
        open_store(_URL)
    monkeypatch.setenv("OCI_REGION", "us-ashburn-1")
    assert "us-ashburn-1" in OciStore.at(_URL)._gate.origin.text


@pytest.mark.parametrize("url", ["oci://bucket/a", "oci://", "oci://@space/a", "oci://a@b@c/d"])
def test_a_url_without_bucket_and_namespace_is_refused(url: str) -> None:
    """The error shows how it is written."""
    with pytest.raises(SchemaError, match="oci://<bucket>@<namespace>"):
        open_store(url)


# --- credentials ----------------------------------------------------------------------------------


def test_options_alone_say_who_we_are(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No file is needed, the key may be locked, and no secret shows or travels with a pickle."""
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "none"))
    options = {
        "tenancy": storage.tenancy,
        "user": storage.user,
        "fingerprint": storage.fingerprint,
        "key": storage.key("sesame"),
        "pass_phrase": "sesame",
    }
    store = _store(storage, **options)
    store.put("a", [b"body"])
    assert store.get("a") == b"body"
    shown = pickle.dumps(store)
    assert b"PRIVATE KEY" not in shown
    assert b"sesame" not in shown
    with pytest.raises(AccessDeniedError, match="not in the pickle"):
        pickle.loads(shown).get("a")
    with pytest.raises(AccessDeniedError, match="pass phrase is wrong") as caught:
        _store(storage, **{**options, "pass_phrase": "wrong"}).get("a")
    assert "wrong'" not in str(caught.value)
    with pytest.raises(AccessDeniedError, match="fingerprint missing"):
        _store(storage, **{**options, "fingerprint": ""}).get("a")


def test_a_wrong_identity_is_refused(storage: ObjectStorage, config: Path) -> None:
    """The service's refusal is `AccessDeniedError`; so is a key that is not there."""
    text = config.read_text()
    config.write_text(text.replace(storage.user, "ocid1.user.oc1..other"))
    with pytest.raises(AccessDeniedError, match="NotAuthenticated"):
        _store(storage).get("a")
    config.write_text(text.replace("key.pem", "lost.pem"))
    with pytest.raises(AccessDeniedError, match="key_file"):
        _store(storage).get("a")


def test_profiles_and_sessions(storage: ObjectStorage, config: Path, tmp_path: Path) -> None:
    """A profile adds to the file's defaults; a token of a session is read anew when refused."""
    token = tmp_path / "token"
    token.write_text("first\n")
    with config.open("a") as out:
        out.write(f"[session]\nsecurity_token_file={token}\n[other]\nuser=nobody\n")
    storage.key_id, before = "ST$first", storage.key_id
    try:
        store = _store(storage, profile="session")
        store.put("a", [b"body"])
        storage.key_id = "ST$second"
        with pytest.raises(AccessDeniedError):
            store.get("a")
        token.write_text("second\n")
        assert store.get("a") == b"body"
    finally:
        storage.key_id = before
    with pytest.raises(AccessDeniedError, match="unknown key"):
        _store(storage, profile="other").get("a")


def test_a_function_is_asked_again(storage: ObjectStorage, config: Path) -> None:
    """Options that ran out are renewed, and the read goes on."""
    storage.objects.clear()
    tokens = iter(["old", "new", "newer"])
    del config
    storage.key_id, before = "ST$new", storage.key_id
    try:
        store = OciStore.at(
            _URL,
            lambda: {
                "endpoint_url": storage.url,
                "key": storage.key(),
                "security_token": next(tokens),
            },
        )
        with pytest.raises(ObjectNotFoundError):
            store.get("a")
    finally:
        storage.key_id = before


def test_public_buckets_need_no_signature(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one no package is needed either; with one it is named."""
    _store(storage).put("a", [b"body"])
    storage.public = True
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hashes", None)
    assert _store(storage, anonymous=True).get("a") == b"body"
    with pytest.raises(MissingExtraError, match=r"streaming-core\[oci\]"):
        _store(storage).get("a")


def test_a_clock_that_is_wrong_is_set_right(storage: ObjectStorage) -> None:
    """An hour of difference costs one more request, once."""
    storage.ahead = 3600.0
    store = _store(storage)
    store.put("a", [b"body"])
    before = storage.web.count()
    assert store.get("a") == b"body"
    assert storage.web.count() == before + 1


# --- errors ---------------------------------------------------------------------------------------


def test_a_missing_bucket_is_told_from_a_missing_object(storage: ObjectStorage) -> None:
    """Both are `ObjectNotFoundError`, and say which it is; a listing does not hide it."""
    other = OciStore.at("oci://other@space/folder", {"endpoint_url": storage.url})
    with pytest.raises(ObjectNotFoundError, match="ObjectNotFound"):
        _store(storage).get("a")
    with pytest.raises(ObjectNotFoundError, match="BucketNotFound"):
        other.get("a")
    with pytest.raises(ObjectNotFoundError, match="BucketNotFound"):
        list(other.list())


def test_a_busy_service_is_told_and_retried(storage: ObjectStorage) -> None:
    """Too many requests, and another writer at the same moment, are errors that pass."""
    store = _store(storage)
    storage.failing = [Said(429, b"{}", {"Retry-After": "2"})]
    with pytest.raises(StoreBusyError) as caught:
        store.put("a", [b"body"])
    assert caught.value.retry_after == 2
    storage.failing = [said_json({"code": "ConcurrentObjectUpdate", "message": "busy"}, 409)]
    info = RequestPolicy(2, first_pause=0.01).call(lambda: store.put("a", [b"body"]))
    assert store.head("a") == info


def test_what_is_no_listing_is_an_error(storage: ObjectStorage) -> None:
    """A page of HTML with status 200 is no empty folder."""
    storage.failing = [Said(200, b"<html>")]
    with pytest.raises(StoreError, match="not as documented"):
        list(_store(storage).list())


# --- large objects --------------------------------------------------------------------------------


def test_large_objects_go_in_parts(storage: ObjectStorage) -> None:
    """They come back equal, are created only once if so wanted, and leave no upload behind."""
    store = _store(storage)
    info = store.put("large", [_LARGE[:100], memoryview(_LARGE)[100:]], if_absent=True)
    assert store.head("large") == info
    assert storage.web.count("PUT", "/n/space/b/bucket/u/folder/large") == 3
    assert store.get("large") == _LARGE
    with pytest.raises(AlreadyExistsError):
        store.put("large", [_LARGE[::-1]], if_absent=True)
    assert store.get_ranges("large", [(-9, None)]) == [_LARGE[-9:]]
    assert storage.uploads == {}


def test_a_failed_upload_is_aborted(storage: ObjectStorage) -> None:
    """A part that is refused leaves neither an object nor parts that cost money."""
    store = _store(storage)
    serve = storage.web.answer
    assert serve is not None

    def break_down(asked: Any) -> Said | None:
        if "uploadPartNum=2" in asked.target:
            return said_json({"code": "InternalServerError", "message": "broken"}, 500)
        return serve(asked)

    storage.web.answer = break_down
    try:
        with pytest.raises(StoreError, match="InternalServerError"):
            store.put("large", [_LARGE])
    finally:
        storage.web.answer = serve
    assert (storage.uploads, storage.objects) == ({}, {})


# --- a data set -----------------------------------------------------------------------------------


def test_a_data_set_is_written_and_read(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the writer puts, shards and index, a reader streams."""
    monkeypatch.setenv("OCI_CLI_ENDPOINT", storage.url)
    samples = [{"text": f"sample {i}", "body": bytes([i]) * 20_000} for i in range(100)]
    columns = {"text": "str", "body": "bytes"}
    with MDSWriter(out=f"{_URL}/train", columns=columns, size_limit=1 << 20) as out:
        for sample in samples:
            out.write(sample)
    local = str(tmp_path / "cache")
    data = StreamingDataset(remote=f"{_URL}/train", local=local, shuffle=False, batch_size=1)
    assert [dict(sample) for sample in data] == samples
