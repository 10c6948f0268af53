"""Signatures equal those of Amazon's own signer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._store._s3._gate import _payload, _signed_at
from streaming_core._store._s3._sign import Keys, signature_headers

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)
_NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30)
_QUERY_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1)


@given(
    method=st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"]),
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(["b.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "[::1]:9000"]),
    region=st.sampled_from(["eu-west-1", "us-east-1", "auto", "cn-north-1"]),
    key=_TEXTS,
    query=st.dictionaries(_QUERY_NAMES, _TEXTS, max_size=4),
    headers=st.dictionaries(_NAMES.map("x-amz-meta-{}".format), _VALUES, max_size=4),
    token=st.sampled_from(["", "a/token+with=signs=="]),
    body=st.binary(max_size=40),
)
def test_signs_as_botocore_does(
    method: str,
    scheme: str,
    host: str,
    region: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    token: str,
    body: bytes,
) -> None:
    """Every header that botocore adds to a request, ours has with the same value."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.config import Config
    from botocore.credentials import Credentials

    path = "/" + quote(key, safe="/-_.~")
    request = AWSRequest(
        method=method, url=f"{scheme}://{host}{path}", headers=headers, params=query, data=body
    )
    signs_body = scheme == "http" or not body
    request.context["client_config"] = Config(s3={"payload_signing_enabled": signs_body})
    credentials = Credentials("the id", "the/secret+", token or None)
    S3SigV4Auth(credentials, "s3", region).add_auth(request)
    moment = datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = signature_headers(
        Keys("the id", "the/secret+", token),
        region,
        moment,
        method=method,
        host=host,
        path=path,
        query=query,
        headers=headers,
        payload=_payload([memoryview(body)] if body else [], scheme),
    )
    theirs = {name.lower(): value for name, value in request.headers.items()}
    added = {name: value for name, value in theirs.items() if name not in headers}
    added.pop("x-amz-date", None)
    mine = {name.lower(): value for name, value in ours.items()}
    assert {name: mine[name] for name in added} == added
    assert mine["x-amz-date"] == request.context["timestamp"]


def test_headers_that_proxies_change_are_not_signed() -> None:
    """A range or a condition makes no other signature, the type of the body does."""

    def signed(headers: dict[str, str]) -> str:
        return signature_headers(
            Keys("id", "secret"),
            "eu-west-1",
            datetime(2026, 1, 2, tzinfo=UTC),
            method="GET",
            host="host",
            path="/a",
            query={},
            headers=headers,
            payload="",
        )["Authorization"]

    assert signed({}) == signed({"Range": "bytes=0-1", "If-None-Match": "*"})
    assert signed({}) != signed({"Content-Type": "text/plain"})
    assert signed({"Content-Type": "a"}) != signed({"Content-Type": "b"})


_CALL: dict[str, Any] = {
    "keys": Keys("id", "secret", "token"),
    "region": "eu-west-1",
    "moment": datetime(2026, 1, 2, tzinfo=UTC),
    "method": "GET",
    "host": "host",
    "path": "/a",
    "query": {"x": "1"},
    "headers": {"x-amz-a": "b"},
    "payload": "0",
}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("keys", Keys("id", "secret", "another")),
        ("keys", Keys("id", "another", "token")),
        ("keys", Keys("another", "secret", "token")),
        ("region", "eu-west-2"),
        ("moment", datetime(2026, 1, 2, 0, 0, 1, tzinfo=UTC)),
        ("method", "HEAD"),
        ("host", "another"),
        ("path", "/b"),
        ("query", {"x": "2"}),
        ("headers", {"x-amz-a": "c"}),
        ("payload", "1"),
    ],
)
def test_what_is_kept_is_for_the_same_request_only(name: str, other: object) -> None:
    """One signature serves the same request again, and whatever is signed has one of its own."""
    first = signature_headers(**_CALL)
    second = signature_headers(**{**_CALL, name: other})
    assert first["Authorization"] != second["Authorization"]
    expected = dict(first)
    first.clear()  # what is given belongs to who asked
    assert signature_headers(**_CALL) == expected


@given(st.floats(0, 4e9))
def test_the_moment_to_sign_with_is_a_recent_one(seconds: float) -> None:
    """Services refuse what was signed more than a few minutes ago, or in the future."""
    assert 0 <= seconds - _signed_at(seconds).timestamp() < 10


def test_keys_do_not_show() -> None:
    """Neither the secret nor the rest is in the text of keys."""
    assert repr(Keys("id", "secret", "token")) == str(Keys("id", "secret", "token")) == "Keys(...)"
