"""What the XML of S3 says. Pure; `DocumentError` is raised for what is no answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "DocumentError",
    "Entry",
    "ObjectPage",
    "Upload",
    "UploadPage",
    "completed_etag",
    "completion",
    "error_of",
    "object_page",
    "upload_id",
    "upload_page",
]

_EXPECTED_REGION: Final = re.compile(r"expecting '([^']+)'")


class DocumentError(ValueError):
    """An answer that is not what it should be."""


class Entry(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    etag: str


class ObjectPage(NamedTuple):
    """A part of a listing."""

    entries: list[Entry]
    next_token: str
    """What to ask the next page with; empty for the last one."""


class Upload(NamedTuple):
    """An upload in parts that was begun and not ended."""

    key: str
    upload_id: str


class UploadPage(NamedTuple):
    """A part of a listing of uploads."""

    uploads: list[Upload]
    next_query: dict[str, str]
    """What to ask the next page with; empty for the last one."""


def error_of(body: bytes) -> tuple[str, str, str]:
    """Return code, message and expected region that an error document has; empty where it has not.

    The rest of the document may show who asked.

    Example:
        >>> error_of(b"<Error><Code>NoSuchKey</Code><Message>No key.</Message></Error>")
        ('NoSuchKey', 'No key.', '')
    """
    try:
        root = ET.fromstring(body.strip())  # noqa: S314 - expat limits what entities expand to
    except ET.ParseError:
        return "", "", ""
    message = _text(root, "Message")
    expected = _EXPECTED_REGION.search(message)
    region = _text(root, "Region") or (expected[1] if expected else "")
    return _text(root, "Code"), message, region


def object_page(body: bytes, asked: str = "") -> ObjectPage:
    """Return a page of `ListObjectsV2`, which was asked for with the token `asked`.

    Example:
        >>> object_page(b"<R><Contents><Key>a</Key><Size>3</Size></Contents></R>").entries
        [Entry(key='a', size=3, etag='')]
    """
    root = _root(body, "ListBucketResult")
    decode = _decoder(root)
    entries = [
        Entry(decode(_text(found, "Key")), _size(_text(found, "Size")), _text(found, "ETag"))
        for found in _all(root, "Contents")
    ]
    token = _text(root, "NextContinuationToken")
    more = _text(root, "IsTruncated") == "true"
    if more and not token:
        msg = "the listing says that there is more, but not how to ask for it"
        raise DocumentError(msg)
    if more and token == asked:
        msg = "the listing goes round in a circle"
        raise DocumentError(msg)
    return ObjectPage(entries, token if more else "")


def upload_page(body: bytes) -> UploadPage:
    """Return a page of `ListMultipartUploads`."""
    root = _root(body, "ListMultipartUploadsResult")
    decode = _decoder(root)
    uploads = [
        Upload(decode(_text(found, "Key")), _text(found, "UploadId"))
        for found in _all(root, "Upload")
    ]
    if _text(root, "IsTruncated") != "true":
        return UploadPage(uploads, {})
    query = {"key-marker": decode(_text(root, "NextKeyMarker"))}
    if marker := _text(root, "NextUploadIdMarker"):
        query["upload-id-marker"] = marker
    return UploadPage(uploads, query)


def upload_id(body: bytes) -> str:
    """Return the name of an upload that was just begun."""
    found = _text(_root(body, "InitiateMultipartUploadResult"), "UploadId")
    if not found:
        msg = "the answer does not name the upload that was begun"
        raise DocumentError(msg)
    return found


def completion(parts: Iterable[tuple[str, str]]) -> bytes:
    """Return the document that joins parts, of which each etag and checksum is given in order.

    Example:
        >>> completion([("e", "")])[:64]
        b'<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e'
    """
    root = ET.Element("CompleteMultipartUpload")
    for number, (etag, crc) in enumerate(parts, 1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
        if crc:
            ET.SubElement(part, "ChecksumCRC32").text = crc
    return ET.tostring(root)


def completed_etag(body: bytes) -> str:
    """Return the etag of an object that was joined from parts.

    The status is sent before they are joined, so an error may come with a status of success.
    """
    return _text(_root(body, "CompleteMultipartUploadResult"), "ETag")


def _root(body: bytes, wanted: str) -> ET.Element:
    try:
        # While the parts are being joined, white space is sent to keep the line alive.
        root = ET.fromstring(body.strip())  # noqa: S314 - expat limits what entities expand to
    except ET.ParseError as error:
        msg = f"the answer is no XML document ({error}); check that the endpoint speaks S3"
        raise DocumentError(msg) from None
    name = _name(root)
    if name == "Error":
        msg = f"{_text(root, 'Code')}: {_text(root, 'Message')}"
        raise DocumentError(msg)
    if name.lower() in {"html", "body"}:
        msg = f"the answer is a page for people where {wanted} was expected; check the endpoint"
        raise DocumentError(msg)
    return root


def _decoder(root: ET.Element) -> Callable[[str], str]:
    # Not all stores know the encoding that was asked for; those that do say so.
    return unquote_plus if _text(root, "EncodingType") == "url" else str


def _all(root: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in root if _name(child) == name]


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ET.Element, name: str) -> str:
    return next((child.text or "" for child in element if _name(child) == name), "")


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        msg = f"the listing has an object of {text!r:.40} bytes"
        raise DocumentError(msg)
    return int(text)
