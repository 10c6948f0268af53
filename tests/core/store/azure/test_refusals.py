"""What the real service says and no emulator does: refusals, clocks, listings of namespaces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.web import Asked, Said, WebServer, in_turn

from streaming_core import open_store
from streaming_core._store import Store, is_final
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEY = {"account_key": "a2V5"}
_NOBODY = {"anonymous": True}


@pytest.fixture
def server() -> Iterator[WebServer]:
    """Return a server that says what a test wants."""
    with WebServer() as running:
        yield running


def _store(server: WebServer, options: dict[str, Any]) -> Store:
    return open_store("az://data", {"endpoint_url": f"{server.url}/acct", **options})


def _refusal(status: int, code: str, more: str = "", **headers: str) -> Said:
    body = f"\ufeff<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code>{more}</Error>"
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Said(status, body.encode(), {"x-ms-error-code": code, **names})


_VERBS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list()),
    "put": lambda store: store.put("a", [b"body"]),
    "create": lambda store: store.put("a", [b"body"], if_absent=True),
    "delete": lambda store: store.delete("a"),
}


@pytest.mark.parametrize(
    ("status", "code", "verb", "options", "expected"),
    [
        (404, "BlobNotFound", "get", _KEY, ObjectNotFoundError),
        (404, "ResourceNotFound", "head", _KEY, ObjectNotFoundError),
        # Private containers are hidden from nobody in particular.
        (404, "ResourceNotFound", "get", _NOBODY, AccessDeniedError),
        (404, "ResourceNotFound", "list", _NOBODY, AccessDeniedError),
        (401, "NoAuthenticationInformation", "get", _NOBODY, AccessDeniedError),
        (409, "PublicAccessNotPermitted", "get", _NOBODY, AccessDeniedError),
        (403, "AuthorizationPermissionMismatch", "get", _KEY, AccessDeniedError),
        (409, "BlobAlreadyExists", "create", _KEY, AlreadyExistsError),
        (412, "ConditionNotMet", "create", _KEY, AlreadyExistsError),
        (403, "UnauthorizedBlobOverwrite", "create", _KEY, AlreadyExistsError),
        (403, "UnauthorizedBlobOverwrite", "put", _KEY, AccessDeniedError),
        (409, "BlobImmutableDueToPolicy", "put", _KEY, AccessDeniedError),
        # Conflicts that are not about what exists.
        (412, "LeaseIdMissing", "put", _KEY, StoreError),
        (412, "LeaseIdMissing", "create", _KEY, StoreError),
        (409, "ContainerBeingDeleted", "create", _KEY, StoreError),
        (409, "BlobArchived", "get", _KEY, StoreError),
        (409, "SomethingNew", "create", _KEY, StoreError),
        (404, "ContainerNotFound", "get", _KEY, LastingError),
        (404, "ContainerNotFound", "delete", _KEY, LastingError),
        (400, "InvalidResourceName", "list", _KEY, StoreError),
        (500, "OperationTimedOut", "get", _KEY, StoreError),
        (503, "ServerBusy", "put", _KEY, StoreBusyError),
        (429, "TooManyRequests", "head", _KEY, StoreBusyError),
    ],
)
def test_a_refusal_has_its_type(
    server: WebServer,
    status: int,
    code: str,
    verb: str,
    options: dict[str, Any],
    expected: type[StoreError],
) -> None:
    """Each is the error that callers expect, exactly, with the service's own name for it."""
    server.answer = lambda _: _refusal(status, code)
    with pytest.raises(StoreError, match=code) as caught:
        _VERBS[verb](_store(server, options))
    assert type(caught.value) is expected
    assert is_final(caught.value) == (expected not in {StoreError, StoreBusyError})
    assert "az://data" in str(caught.value)


@pytest.mark.parametrize(("headers", "expected"), [({"Retry_After": "7"}, 7.0), ({}, None)])
def test_a_busy_service_says_for_how_long(
    server: WebServer, headers: dict[str, str], expected: float | None
) -> None:
    """`Retry-After` is kept, and nothing is tried again here."""
    server.answer = lambda _: _refusal(503, "ServerBusy", **headers)
    for verb in _VERBS.values():
        with pytest.raises(StoreBusyError) as caught:
            verb(_store(server, _KEY))
        assert caught.value.retry_after == expected
    assert server.count() == len(_VERBS)


def test_the_message_is_the_services_first_line(server: WebServer) -> None:
    """What was signed, which the service repeats, is not shown; that a time is over is."""
    more = (
        "<Message>Server failed.\nRequestId:1\nTime:2026</Message><AuthenticationErrorDetail>"
        "The MAC signature found in the HTTP request 'c2lnbmF0dXJl' is not the same"
        "</AuthenticationErrorDetail>"
    )
    server.answer = lambda _: _refusal(403, "AuthenticationFailed", more)
    with pytest.raises(AccessDeniedError, match="AuthenticationFailed, Server failed;") as caught:
        _store(server, _KEY).get("a")
    assert "c2lnbmF0dXJl" not in str(caught.value)
    frame = "Signature not valid in the specified time frame: Start [x] - Expiry [y] - Current [z]"
    more = f"<AuthenticationErrorDetail>{frame}</AuthenticationErrorDetail>"
    with pytest.raises(AccessDeniedError, match=r"Expiry \[y\]"):
        _store(server, {"sas_token": "sig=1"}).get("a")


def test_a_clock_that_is_off_is_corrected_once(server: WebServer) -> None:
    """Keys are signed with the service's time where it refuses ours; the next requests know it."""
    ahead = timedelta(hours=2)
    seen: list[bool] = []

    def answer(asked: Asked) -> Said:
        there = datetime.now(UTC) + ahead
        ours = parsedate_to_datetime(asked.headers["x-ms-date"])
        seen.append(abs(there - ours) < timedelta(minutes=15))
        if seen[-1]:
            return Said(200, b"body", {"ETag": '"1"'})
        return _refusal(403, "AuthenticationFailed", Date=format_datetime(there, usegmt=True))

    server.answer = answer
    store = _store(server, _KEY)
    assert [store.get("a"), store.get("a")] == [b"body"] * 2
    assert seen == [False, True, True]


def test_a_wrong_key_is_not_tried_again(server: WebServer) -> None:
    """Where the clocks agree the refusal is final after one request."""
    now = format_datetime(datetime.now(UTC), usegmt=True)
    server.answer = lambda _: _refusal(403, "AuthenticationFailed", Date=now)
    with pytest.raises(AccessDeniedError):
        _store(server, _KEY).get("a")
    assert server.count() == 1


# --- hierarchical namespaces ----------------------------------------------------------------------


def _entry(name: str, kind: str = "file", attributes: str = "", more: str = "") -> str:
    return (
        f"<Blob><Name{attributes}>{name}</Name><Properties><Etag>0x1</Etag>"
        f"<Content-Length>4</Content-Length><ResourceType>{kind}</ResourceType></Properties>"
        f"{more}</Blob>"
    )


def _page(*entries: str, marker: str = "") -> Said:
    body = (
        f"\ufeff<?xml version='1.0' encoding='utf-8'?><EnumerationResults><Blobs>"
        f"{''.join(entries)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    )
    return Said(200, body.encode())


def test_a_namespaces_listing_is_put_in_order_without_folders(server: WebServer) -> None:
    """There a folder's content comes before what sorts between; names may be escaped for XML."""
    folder = "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"
    server.answer = in_turn(
        _page(
            _entry("set/a", "directory"),
            _entry("set/a/1"),
            _entry("set/a/%EF%BF%BE!", attributes=' Encoded="true"'),
            _entry("set/old", "", more=folder),
            marker="next one",
        ),
        _page(_entry("set/a-b"), _entry("set/a.%41"), _entry("set/x//y"), _entry("set/z/")),
    )
    store = _store(server, _KEY).child("set")
    assert [info.key for info in store.list()] == ["a-b", "a.%41", "a/1", "a/\ufffe!"]
    assert [entry.method for entry in server.log] == ["GET", "GET"]


def test_below_a_file_there_is_nothing(server: WebServer) -> None:
    """A prefix that leads through a file is an error there, and an empty listing here."""
    server.answer = lambda _: _refusal(404, "PathNotFound")
    assert list(_store(server, _KEY).list("file/below/")) == []


def test_a_folder_is_neither_read_nor_deleted(server: WebServer) -> None:
    """The service reads folders as empty blobs, and refuses to delete those that are not empty."""
    kind = {"x-ms-resource-type": "directory", "ETag": '"1"'}
    server.answer = lambda asked: (
        _refusal(409, "DirectoryIsNotEmpty") if asked.method == "DELETE" else Said(200, b"", kind)
    )
    store = _store(server, _KEY)
    for verb in ("get", "head"):
        with pytest.raises(ObjectNotFoundError, match="a folder"):
            _VERBS[verb](store)
    store.delete("a")


@pytest.mark.parametrize("body", [b"", b"<html>", b"<EnumerationResults><Blobs>"])
def test_a_listing_that_is_none_is_an_error(server: WebServer, body: bytes) -> None:
    """What some proxy says instead is not taken for an empty container."""
    server.answer = lambda _: Said(200, body)
    with pytest.raises(StoreError, match=r"list in az://data.*XML"):
        list(_store(server, _KEY).list())
