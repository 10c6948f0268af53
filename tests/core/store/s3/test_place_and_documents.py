"""Where buckets are, and what the service's documents say."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core import open_store
from streaming_core._store._s3 import S3Store
from streaming_core._store._s3._documents import (
    DocumentError,
    completed_etag,
    error_of,
    object_page,
    upload_id,
    upload_page,
)
from streaming_core.errors import SchemaError


def _reached(url: str, **options: Any) -> str:
    """Return where requests for a store go."""
    gate = S3Store.at(url, options)._s3
    return gate.learned.way.origin.text + gate.learned.way.base


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "wanted"),
    [
        ("s3://data/x", {}, "https://data.s3.us-east-1.amazonaws.com"),
        ("s3://data", {"region": "eu-west-1"}, "https://data.s3.eu-west-1.amazonaws.com"),
        ("s3://data", {"region": "cn-north-1"}, "https://data.s3.cn-north-1.amazonaws.com.cn"),
        ("s3://my.data", {}, "https://s3.us-east-1.amazonaws.com/my.data"),
        ("s3://Data_1", {}, "https://s3.us-east-1.amazonaws.com/Data_1"),
        ("s3://data", {"addressing_style": "path"}, "https://s3.us-east-1.amazonaws.com/data"),
        ("s3://data", {"endpoint_url": "http://h:9/"}, "http://h:9/data"),
        ("s3://data", {"endpoint_url": "https://h/s3"}, "https://h/s3/data"),
        (
            "s3://data",
            {"endpoint_url": "https://h:1", "addressing_style": "virtual"},
            "https://data.h:1",
        ),
        ("r2://data/x", {"account_id": "abc"}, "https://abc.r2.cloudflarestorage.com/data"),
        (
            "r2://data",
            {"endpoint_url": "https://abc.eu.r2.example"},
            "https://abc.eu.r2.example/data",
        ),
    ],
)
def test_finds_the_bucket(url: str, options: dict[str, Any], wanted: str) -> None:
    """Host and path follow from bucket, region, endpoint and style of addressing."""
    assert _reached(url, **options) == wanted


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"AWS_DEFAULT_REGION": "a-1", "AWS_REGION": "b-1"}, "https://data.s3.b-1.amazonaws.com"),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}, "http://b/data"),
        ({"S3_ENDPOINT_URL": "http://c", "AWS_ENDPOINT_URL_S3": "http://b"}, "http://c/data"),
    ],
)
def test_listens_to_the_environment(
    variables: dict[str, str], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of AWS and of other tools count, in their order; options go first."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _reached("s3://data") == wanted
    assert _reached("s3://data", endpoint_url="http://z", region="z-1") == "http://z/data"


def test_r2_takes_its_account_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account is enough, and what is missing is said."""
    with pytest.raises(SchemaError, match=r"account_id.*R2_ACCOUNT_ID"):
        open_store("r2://data")
    monkeypatch.setenv("R2_ACCOUNT_ID", "abc")
    store = open_store("r2://data/x")
    assert store.url == "r2://data/x"
    assert _reached("r2://data") == "https://abc.r2.cloudflarestorage.com/data"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://", "bucket"),
        ("s3:///folder", "bucket"),
        ("s3://id:se-cret@bucket/x", "bucket"),
        ("s3://bucket:80/x", "bucket"),
        ("s3://buck\r\net/x", "bucket"),
        ("s3://bucket/../x", "folder"),
        ("s3://bucket/a//b", "folder"),
        ("s3:/bucket/a", "bucket"),
    ],
)
def test_refuses_urls_that_name_no_place(url: str, told: str) -> None:
    """What is no bucket and folder is an error that says so, and shows no password."""
    with pytest.raises(SchemaError, match=told) as caught:
        open_store(url)
    assert "se-cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint_url": "host:9000"},
        {"endpoint_url": "ftp://host"},
        {"endpoint_url": "http://user:se-cret@host"},
        {"endpoint_url": "http://host:port"},
        {"endpoint_url": "http://host?token=se-cret"},
        {"addressing_style": "both"},
        {"region": "eu-west-1.evil.org/"},
        {"unheard_of": "x"},
    ],
)
def test_refuses_options_that_cannot_be(options: dict[str, Any]) -> None:
    """A wrong option is found when the store is made."""
    with pytest.raises(SchemaError, match="|".join(options)) as caught:
        open_store("s3://bucket", options)
    assert "se-cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a b/c%20d?e#f", "s3://bucket/ä"])
def test_its_url_leads_back(url: str) -> None:
    """`open_store` takes a store's URL; nothing in it is an escape or a query."""
    assert open_store(url).url == url
    assert open_store(open_store(url).url) == open_store(url)
    assert open_store(f"{url}/") == open_store(url)


# --- documents ------------------------------------------------------------------------------------

_KEYS = st.text(
    # XML has no control characters and not these two.
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=20,
)


@given(
    entries=st.lists(st.tuples(_KEYS, st.integers(0, 1 << 60), _KEYS), max_size=5),
    encoded=st.booleans(),
    token=st.text("abc/+=", max_size=8),
    spaced=st.booleans(),
)
def test_reads_listings(
    entries: list[tuple[str, int, str]], encoded: bool, token: str, spaced: bool
) -> None:
    """Keys, sizes, etags and the next page come back, whether the keys were encoded or not."""
    name = "ListBucketResult"
    text = f'<?xml version="1.0"?><{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    text += "<EncodingType>url</EncodingType>" if encoded else ""
    text += f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
    text += f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    for key, size, etag in entries:
        shown = quote_plus(key, safe="/") if encoded else escape(key)
        text += f"<Contents><Key>{shown}</Key><Size>{size}</Size><ETag>{escape(etag)}</ETag>"
        text += "<Owner><ID>me</ID></Owner></Contents>"
    body = f"{text}</{name}>".encode()
    page = object_page(b"\n " + body if spaced else body)
    assert (page.entries, page.next_token) == (entries, token)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "no XML"),
        (b"<a><b></a>", "no XML"),
        (b"<html><body>Sign in</body></html>", "page for people"),
        (b"<Error><Code>InternalError</Code><Message>Oh.</Message></Error>", "InternalError: Oh."),
        (b"<R><IsTruncated>true</IsTruncated></R>", "more"),
        (b"<R><Contents><Key>a</Key><Size>-1</Size></Contents></R>", "bytes"),
        (b"<R><Contents><Key>a</Key><Size>\xd9\xa3</Size></Contents></R>", "bytes"),
    ],
)
def test_refuses_listings_that_are_none(body: bytes, told: str) -> None:
    """A listing is never shorter than what the store meant without an error."""
    with pytest.raises(DocumentError, match=told):
        object_page(body)


def test_reads_what_uploads_say() -> None:
    """The name of an upload, the etag at its end, and a listing of the unfinished ones."""
    assert upload_id(b"<R><UploadId>u1</UploadId></R>") == "u1"
    assert completed_etag(b"\n\n  <R><ETag>&quot;e-2&quot;</ETag></R>") == '"e-2"'
    page = upload_page(
        b"<R><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        b"<NextKeyMarker>a+b</NextKeyMarker><NextUploadIdMarker>u2</NextUploadIdMarker>"
        b"<Upload><Key>a%2Fb</Key><UploadId>u1</UploadId></Upload></R>"
    )
    assert page.uploads == [("a/b", "u1")]
    assert page.next_query == {"key-marker": "a b", "upload-id-marker": "u2"}
    with pytest.raises(DocumentError, match="name the upload"):
        upload_id(b"<R></R>")
    with pytest.raises(DocumentError, match="InternalError"):
        completed_etag(b"<Error><Code>InternalError</Code></Error>")


def test_errors_show_their_code_and_nothing_else() -> None:
    """What an error document says of the request and its keys is left out."""
    body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message><AWSAccessKeyId>id"
    assert error_of(body + b"</AWSAccessKeyId></Error>") == ("SignatureDoesNotMatch", "No.", "")
    assert error_of(b"not XML") == ("", "", "")
    text = b"<Error><Message>region 'us-east-1' is wrong; expecting 'eu-west-1'</Message></Error>"
    assert error_of(text)[2] == "eu-west-1"


def test_a_listing_that_goes_round_in_a_circle_is_refused() -> None:
    """A page that names the token it was asked with would be asked for without end."""
    body = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated>"
        b"<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
    )
    assert {object_page(body).next_token, object_page(body, "s").next_token} == {"t"}
    with pytest.raises(DocumentError, match="circle"):
        object_page(body, "t")
