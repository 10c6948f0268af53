"""URLs, options and the environment: where requests go, and in whose name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.gcs import HMAC

from streaming_core._store import open_store
from streaming_core._store._gcs import GCSKeyStore, GCSStore
from streaming_core._store._gcs._place import ENDPOINT, place_of
from streaming_core.errors import AccessDeniedError, AlreadyExistsError, SchemaError, StoreError

if TYPE_CHECKING:
    from tests.servers.gcs import KeyedServer
    from tests.servers.gcs_rules import GoogleRules
    from tests.servers.web import Asked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("gs://bucket", "gs://bucket"),
        ("gs://bucket/", "gs://bucket"),
        ("gcs://bucket/a/b/", "gs://bucket/a/b"),
        ("gs://bucket/a b/#1?x", "gs://bucket/a b/#1?x"),
        ("gs://domain.example/ä", "gs://domain.example/ä"),
    ],
)
def test_urls_lead_back(url: str, shown: str) -> None:
    """`open_store(store.url)` is the store."""
    store = open_store(url, {"anonymous": True})
    assert store.url == shown
    assert open_store(store.url) == store


@pytest.mark.parametrize("url", ["gs://", "gs:///folder", "gs://user:secret@bucket", "gcs:/bucket"])
def test_urls_without_a_bucket_are_refused(url: str) -> None:
    """The error shows the form that is wanted, and no secret."""
    with pytest.raises(SchemaError, match=r"gs://bucket/folder") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ({}, None, ENDPOINT),
        ({}, "127.0.0.1:9023", "http://127.0.0.1:9023"),
        ({}, "http://localhost:9023", "http://localhost:9023"),
        ({"endpoint_url": "https://private.example"}, "localhost:1", "https://private.example"),
    ],
)
def test_an_endpoint_is_found(
    options: dict[str, str], variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option is before the environment, which is before Google's own."""
    if variable is not None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", variable)
    place, _ = place_of("gs://bucket", options)
    assert place.endpoint == expected


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"endpoint_url": "localhost"}, "endpoint_url"),
        ({"project_id": "x"}, "project_id"),
        ({"user_project": "a\r\nb"}, "user_project"),
        ({"project": "a b"}, "project"),
        ({"hmac_key_id": "GOOG1"}, "hmac_secret"),
        ({"hmac_secret": "s3cr3t"}, "hmac_key_id"),
        ({"hmac_key_id": "a\nb", "hmac_secret": "s3cr3t"}, "hmac_key_id"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], wanted: str) -> None:
    """The error names the option, before anything is sent, and shows no secret."""
    with pytest.raises(SchemaError, match=wanted) as caught:
        open_store("gs://bucket", options)
    assert "s3cr3t" not in str(caught.value)


def test_who_pays_is_in_every_request(rules: GoogleRules) -> None:
    """Requests for a bucket whose reader pays name the project, and any the quota's."""
    rules.payer = "payer"
    nobody = {"endpoint_url": rules.url, "anonymous": True}
    with pytest.raises(StoreError, match="user project"):
        GCSStore.at("gs://bucket", nobody).put("a", [b"body"])
    store = GCSStore.at("gs://bucket", {**nobody, "user_project": "payer", "project": "quota"})
    store.put("a", [b"body"])
    store.put("large", [bytes(9 << 20)])
    assert store.get("a") == b"body"
    assert [info.key for info in store.list()] == ["a", "large"]
    assert store.head("a").size == 4
    store.delete("a")
    assert {asked.headers.get("x-goog-user-project") for asked in rules.asked[1:]} == {"quota"}


def test_an_endpoint_may_have_a_path(rules: GoogleRules) -> None:
    """What stands before the service, as gateways have it, precedes all paths."""
    rules.before = lambda asked: rules.served(_without(asked, "/gate/way"))
    options = {"endpoint_url": f"{rules.url}/gate/way/", "anonymous": True}
    store = GCSStore.at("gs://bucket", options)
    store.put("a", [b"body"])
    store.put("large", [bytes(40 << 20)])
    assert store.get("a") == b"body"
    assert store.head("large").size == 40 << 20
    assert all(asked.path.startswith("/gate/way/") for asked in rules.asked)


def _without(asked: Asked, path: str) -> Asked:
    return replace(asked, target=asked.target.removeprefix(path))


# --- HMAC keys ------------------------------------------------------------------------------------


def test_keys_in_the_environment_are_used(
    keyed_server: KeyedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`GCS_KEY` and `GCS_SECRET` lead to the other language, under the same URL."""
    bucket = keyed_server.backend.bucket()
    monkeypatch.setenv("GCS_KEY", HMAC["hmac_key_id"])
    monkeypatch.setenv("GCS_SECRET", HMAC["hmac_secret"])
    store = open_store(f"gs://{bucket}/x", {"endpoint_url": keyed_server.url})
    assert isinstance(store, GCSKeyStore)
    assert store.url == f"gs://{bucket}/x"
    store.put("a", [b"body"])
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("a") == b"body"


@pytest.mark.parametrize("options", [{"anonymous": True}, {"token": "given"}])
def test_keys_in_the_environment_give_way(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who says what to use gets that; an emulator is not asked in the other language."""
    monkeypatch.setenv("GCS_KEY", "GOOG1")
    monkeypatch.setenv("GCS_SECRET", "secret")
    assert isinstance(open_store("gs://bucket"), GCSKeyStore)
    assert isinstance(open_store("gs://bucket", options), GCSStore)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:1")
    assert isinstance(open_store("gs://bucket"), GCSStore)


def test_create_only_is_said_in_the_words_of_google(keyed_server: KeyedServer) -> None:
    """Google overlooks `If-None-Match` with writes, so that it must not be what is relied on."""
    store = open_store(f"gs://{keyed_server.backend.bucket()}", keyed_server.options())
    keyed_server.seen.clear()
    store.put("a", [b"first"], if_absent=True)
    with pytest.raises(AlreadyExistsError):
        store.put("a", [bytes(20 << 20)], if_absent=True)
    assert [seen.get("x-goog-if-generation-match") for seen in keyed_server.seen] == ["0", "0"]
    assert not any("if-none-match" in seen for seen in keyed_server.seen)
    assert store.get("a") == b"first"


def test_a_wrong_key_is_an_error_about_access(keyed_server: KeyedServer) -> None:
    """Neither the key nor the signature is shown."""
    options = keyed_server.options(hmac_secret="s3cr3t-of-another")  # noqa: S106
    store = open_store(f"gs://{keyed_server.backend.bucket()}", options)
    with pytest.raises(AccessDeniedError, match="SignatureDoesNotMatch") as caught:
        store.get("a")
    assert "s3cr3t" not in repr((caught.value, store, vars(store._gate)))  # type: ignore[attr-defined]
    assert b"s3cr3t" not in pickle.dumps(store)


def test_a_new_key_is_asked_for_where_the_old_one_was_removed(keyed_server: KeyedServer) -> None:
    """A function is called again, once."""
    calls: list[None] = []

    def options() -> dict[str, Any]:
        calls.append(None)
        return keyed_server.options(**({"hmac_secret": "old"} if len(calls) == 1 else {}))

    store = open_store(f"gs://{keyed_server.backend.bucket()}", options)
    store.put("a", [b"body"])
    assert store.get("a") == b"body"
    assert len(calls) == 2


def test_the_clock_of_the_service_is_learned(keyed_server: KeyedServer) -> None:
    """A refusal for a clock that is wrong tells how late it is, and the request is made again."""
    store = open_store(f"gs://{keyed_server.backend.bucket()}", keyed_server.options())
    keyed_server.ahead = timedelta(hours=2)
    try:
        keyed_server.seen.clear()
        store.put("a", [b"body"])
        assert store.get("a") == b"body"
        assert len(keyed_server.seen) == 3
    finally:
        keyed_server.ahead = timedelta()


def test_boto3_reads_what_keys_wrote(keyed_server: KeyedServer) -> None:
    """Objects are plain ones for other clients, large ones as well."""
    bucket = keyed_server.backend.bucket()
    store = open_store(f"gs://{bucket}/x", partial(keyed_server.options))
    body = bytes(range(256)) * (70 << 10)
    store.put("large", [body[:100], body[100:]])
    with keyed_server.backend.client() as client:
        assert client.get_object(Bucket=bucket, Key="x/large")["Body"].read() == body
        client.put_object(Bucket=bucket, Key="x/ä b%+c", Body=b"theirs")
        client.put_object(Bucket=bucket, Key="x/folder/", Body=b"")
    assert store.get("ä b%+c") == b"theirs"
    assert [info.key for info in store.list()] == ["large", "ä b%+c"]
