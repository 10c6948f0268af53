"""What the service's refusals and wrong answers become."""

from __future__ import annotations

import gzip
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.servers.web import Said

from streaming_core._store import is_final, open_store
from streaming_core._store._gcs import GCSStore
from streaming_core.errors import (
    AccessDeniedError,
    LastingError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.gcs import Emulator, KeyedServer
    from tests.servers.gcs_rules import GoogleRules
    from tests.servers.web import Asked

_VERBS: dict[str, Callable[[GCSStore], object]] = {
    "get": lambda store: store.get("a"),
    "get_ranges": lambda store: store.get_ranges("a", [(0, 1)]),
    "stream": lambda store: list(store.stream("a")),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list()),
    "put": lambda store: store.put("a", [b"body"]),
    "put large": lambda store: store.put("a", [bytes(9 << 20)]),
    "delete": lambda store: store.delete("a"),
}


@pytest.fixture
def store(rules: GoogleRules) -> GCSStore:
    """Return the bucket, with an object `a` of ten bytes."""
    rules.objects["a"] = b"0123456789", 7
    return GCSStore.at("gs://bucket", {"endpoint_url": rules.url, "anonymous": True})


@pytest.mark.parametrize("verb", _VERBS)
def test_a_missing_bucket_is_no_missing_object(rules: GoogleRules, verb: str) -> None:
    """Every verb says that it is the bucket, also those that do not mind a missing object."""
    store = GCSStore.at("gs://buckett/x", {"endpoint_url": rules.url, "anonymous": True})
    with pytest.raises(StoreError, match="there is no bucket 'gs://buckett'") as caught:
        _VERBS[verb](store)
    assert not isinstance(caught.value, ObjectNotFoundError)
    assert store.url in str(caught.value)


@pytest.mark.parametrize("verb", ["list", "put", "put large"])
def test_the_emulator_misses_buckets_as_well(emulated: Emulator, verb: str) -> None:
    """Where the answer has no text at all, verbs that address the bucket know it."""
    options = {"endpoint_url": emulated.url, "anonymous": True}
    with pytest.raises(LastingError, match="there is no bucket"):
        _VERBS[verb](GCSStore.at("gs://never-made", options))


def test_a_missing_bucket_is_known_with_keys(keyed_server: KeyedServer) -> None:
    """The other language tells the two apart as well."""
    store = open_store("gs://never-made/x", keyed_server.options())
    for act in (lambda: store.get("a"), lambda: store.put("a", [b""]), lambda: list(store.list())):
        with pytest.raises(LastingError, match="there is no bucket"):
            act()


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(
    ("said", "kind", "final"),
    [
        (Said(401), AccessDeniedError, True),
        (Said(403, b"somebody does not have storage.objects.get access"), AccessDeniedError, True),
        (Said(429, b"", {"Retry-After": "7"}), StoreBusyError, False),
        (Said(503, b"{}"), StoreBusyError, False),
        (Said(500, b"<html>oh</html>"), StoreError, False),
        (Said(400, b"[]"), StoreError, False),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Said) else "",
)
def test_refusals_have_types(
    store: GCSStore, rules: GoogleRules, verb: str, said: Said, kind: type, *, final: bool
) -> None:
    """Each refusal is one of its kind, with status, place and what the service said."""
    rules.before = lambda _: said
    with pytest.raises(StoreError) as caught:
        _VERBS[verb](store)
    assert type(caught.value) is kind
    assert is_final(caught.value) == final
    assert str(said.status) in str(caught.value)
    assert store.url in str(caught.value)
    if isinstance(caught.value, StoreBusyError) and said.headers:
        assert caught.value.retry_after == 7
        assert "Retry-After 7 seconds" in str(caught.value)
    if said.status == 403:
        assert "storage.objects.get" in str(caught.value)
    assert "<html>" not in str(caught.value)


def test_errors_may_come_compressed(store: GCSStore, rules: GoogleRules) -> None:
    """Whoever takes compressed bytes may be told errors so as well."""
    packed = {"Content-Encoding": "gzip"}
    body = gzip.compress(b"somebody does not have storage.objects.get access")
    rules.before = lambda _: Said(403, body, packed)
    with pytest.raises(AccessDeniedError, match=r"storage\.objects\.get"):
        store.get("a")
    rules.before = lambda _: Said(403, body[:12] + b"broken", packed)
    with pytest.raises(AccessDeniedError, match="403"):
        store.get("a")


@pytest.mark.parametrize("verb", ["head", "list", "put"])
@pytest.mark.parametrize("body", [b"", b"<html>sign in</html>", b"[1]", b'"text"'])
def test_a_page_is_no_answer(store: GCSStore, rules: GoogleRules, verb: str, body: bytes) -> None:
    """Status 200 with something else than a document is an error that may pass."""
    rules.before = lambda _: Said(200, body)
    with pytest.raises(StoreError, match="no JSON document") as caught:
        _VERBS[verb](store)
    assert store.url in str(caught.value)
    assert not is_final(caught.value)


def test_documents_without_size_or_version_are_refused(store: GCSStore, rules: GoogleRules) -> None:
    """What nobody could rely on is not made up."""
    rules.before = lambda _: Said(200, b'{"name": "a", "size": "10"}')
    with pytest.raises(StoreError, match="generation"):
        store.head("a")
    rules.before = lambda _: Said(200, b'{"items": [{"name": "a", "generation": "1"}]}')
    with pytest.raises(StoreError, match="size"):
        list(store.list())
    rules.before = lambda _: Said(200, b'{"items": [{"size": "1"}]}')
    with pytest.raises(StoreError, match="name"):
        list(store.list())
    rules.before = lambda _: Said(200, b'{"items": ["a"]}')
    with pytest.raises(StoreError, match="name"):
        list(store.list())


def test_a_listing_that_goes_round_ends(store: GCSStore, rules: GoogleRules) -> None:
    """A service that gives the same page again and again is an error, not a hang."""
    rules.before = lambda _: Said(200, b'{"nextPageToken": "again"}')
    with pytest.raises(StoreError, match="same page"):
        list(store.list())


def test_listings_leave_out_folders(store: GCSStore, rules: GoogleRules) -> None:
    """Objects that stand for folders, or could be no file, are not listed; pages may be empty."""
    for name in ("folder/", "folder/b", "x//y", "../up", "z"):
        rules.objects[name] = b"", 1
    for rules.page_size in (1, 2, 1000):
        assert [info.key for info in store.list()] == ["a", "folder/b", "z"]
    assert [info.key for info in store.child("folder").list()] == ["b"]


# --- versions -------------------------------------------------------------------------------------


def test_ranges_are_of_one_version(store: GCSStore, rules: GoogleRules) -> None:
    """An object that is replaced between two requests for it is an error, not a mixture."""
    rules.objects["large"] = bytes(1 << 20), 7
    generations = iter((7, 8))

    def replace(asked: Asked) -> None:
        if asked.headers.get("range"):
            rules.objects["large"] = bytes(1 << 20), next(generations)

    rules.before = replace
    with pytest.raises(StoreError, match="replaced"):
        store.get_ranges("large", [(0, 10), (900_000, 900_010)])


def test_one_form_of_etag(store: GCSStore) -> None:
    """The generation is the etag everywhere."""
    info = store.put("b", [b"0123456789"])
    assert info.etag.isdigit()
    assert store.head("b") == info
    assert [found for found in store.list() if found.key == "b"] == [info]
    assert store.get_ranges("b", [(2, 4)]).etag == info.etag
    assert store.get_ranges("b", [(-2, None)]).etag == info.etag
    assert store.get_ranges("b", [(0, None)]).etag == info.etag
    with closing(store.stream("b")) as pieces:
        assert b"".join(map(bytes, pieces)) == b"0123456789"


def test_bytes_come_as_they_lie_there(store: GCSStore, rules: GoogleRules) -> None:
    """What is stored compressed is asked for as such; what was changed on the way is refused."""
    assert store.get("a") == b"0123456789"
    assert rules.asked[-1].headers["accept-encoding"] == "gzip"
    stored = {"x-goog-generation": "1", "x-goog-stored-content-encoding": "gzip"}
    rules.before = lambda _: Said(200, b"packed", {**stored, "Content-Encoding": "gzip"})
    assert store.get("a") == b"packed"
    rules.before = lambda _: Said(200, b"expanded", stored)
    with pytest.raises(StoreError, match="stores the object as gzip"):
        store.get("a")
