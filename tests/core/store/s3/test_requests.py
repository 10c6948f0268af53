"""What requests carry, and what is made of a store that cannot create only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.s3.scripted import ETAG, Scripted, error
from tests.servers.s3 import KEYS
from tests.servers.tls import make_certificates
from tests.servers.web import Said, WebServer

from streaming_core import open_store
from streaming_core.errors import AlreadyExistsError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

# --- create-only ----------------------------------------------------------------------------------


def test_falls_back_where_a_store_cannot_create_only(
    service: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that answers 501 is asked first whether the object is there; the log says so once."""
    service.refuse = lambda asked: (
        error(501, "NotImplemented") if "if-none-match" in asked.headers else None
    )
    store = service.store()
    with caplog.at_level(logging.WARNING, "streaming_core.store"):
        assert store.put("b", [b"one"], if_absent=True).size == 3
        store.put("c", [b"two"], if_absent=True)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "s3://data: this store cannot create only"
    ]
    with pytest.raises(AlreadyExistsError, match="'b'"):
        store.put("b", [b"three"], if_absent=True)
    assert (store.get("b"), store.get("c")) == (b"one", b"two")


def test_a_conflict_is_told_by_looking(service: Scripted) -> None:
    """409 means that another is creating it: it is there now, or the next try will tell."""
    service.refuse = lambda asked: (
        error(409, "ConditionalRequestConflict") if asked.method == "PUT" else None
    )
    store = service.store()
    with pytest.raises(AlreadyExistsError):
        store.put("a", [b"x"], if_absent=True)
    for options in ({"if_absent": True}, {}):
        with pytest.raises(StoreError, match="another is writing it") as caught:
            store.put("absent", [b"x"], **options)
        assert type(caught.value) is StoreError


# --- headers and addresses ------------------------------------------------------------------------


def test_sends_what_was_asked_for(service: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pays and the canned ACL are headers, signed, the latter of writing only."""
    store = service.store(**KEYS, requester_pays=True, canned_acl="bucket-owner-full-control")
    store.put("b", [b"body"])
    store.child("x").put("c", [b"body"])
    store.get("b")
    assert service.header("x-amz-request-payer") == ["requester"] * 3
    acl = "bucket-owner-full-control"
    assert service.header("x-amz-acl") == [acl, acl, ""]
    assert all("x-amz-request-payer" in value for value in service.header("authorization"))
    service.asked.clear()
    monkeypatch.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "other, data")
    monkeypatch.setenv("S3_CANNED_ACL", "private")
    service.store().put("d", [b""])
    assert service.header("x-amz-request-payer") == ["requester"]
    assert service.header("x-amz-acl") == ["private"]


def test_checksums_may_be_left_out(service: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that stumble over checksums get none, by option or as AWS's variable says."""
    service.store().put("b", [b"123456789"])
    service.store(checksums=False).put("b", [b"123456789"])
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    service.store().put("b", [b"123456789"])
    assert service.header("x-amz-checksum-crc32") == ["y/Q5Jg==", "", ""]


def test_addresses_by_host_name(service: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the style `virtual` the bucket is in the host's name, also through a proxy."""
    monkeypatch.setenv("http_proxy", service.server.url)
    service.refuse = lambda _: Said(200, b"body", ETAG)
    options = {"endpoint_url": "http://objects.example", "addressing_style": "virtual", **KEYS}
    store = open_store("s3://data/x", options)
    assert store.get("a b") == b"body"
    assert service.asked[0].target == "http://data.objects.example/x/a%20b"
    assert service.header("host") == ["data.objects.example"]


def test_signs_the_body_where_the_line_does_not_guard_it(service: Scripted, tmp_path: Path) -> None:
    """Without TLS the hash of a body is signed; with it the checksum is, and the hash is spared."""
    body = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"  # sha256sum
    service.store(**KEYS).put("b", [b"bo", b"dy"])
    certificates = make_certificates(tmp_path)
    with WebServer(tls=certificates.server_context()) as server:
        guarded = Scripted(server)
        options: dict[str, Any] = {**KEYS, "ca_file": str(certificates.ca_file)}
        guarded.store(**options).put("b", [b"bo", b"dy"])
        assert guarded.store(**options).get("b") == b"body"
        with pytest.raises(StoreError, match=r"CERTIFICATE_VERIFY_FAILED"):
            guarded.store(**KEYS).get("b")
    assert service.header("x-amz-content-sha256") == [body]
    assert guarded.header("x-amz-content-sha256")[0] == "UNSIGNED-PAYLOAD"
    assert "x-amz-checksum-crc32" in guarded.header("authorization")[0]


# --- listings of servers that err -----------------------------------------------------------------


def test_a_listing_that_goes_round_in_a_circle_ends(service: Scripted) -> None:
    """A server that always says there is more of the same is an error, not an endless listing."""
    page = b"<R><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></R>"
    service.refuse = lambda _: Said(200, page)
    with pytest.raises(StoreError, match=r"list in s3://data: .*circle"):
        list(service.store().list())
    assert len(service.asked) == 2


def test_lists_no_name_that_is_not_safe_and_its_own(service: Scripted) -> None:
    """What is outside the folder, or would be on a disk, is left out."""
    keys = ["x/a", "x/../../etc/passwd", "x//b", "x/folder/", "x/", "y/other", "x", "/x/c", "x/d"]
    entries = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    service.refuse = lambda _: Said(200, f"<R>{entries}</R>".encode())
    assert [info.key for info in service.store().child("x").list()] == ["a", "d"]
