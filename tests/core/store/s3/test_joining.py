"""What stores differ in when the parts of a large object are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.core.store.s3.scripted import ETAG
from tests.servers.web import Said

from streaming_core.errors import AlreadyExistsError

if TYPE_CHECKING:
    from tests.core.store.s3.scripted import Scripted
    from tests.servers.web import Asked

_LARGE = memoryview(bytes(20 << 20))


@pytest.mark.parametrize("named", [True, False])
def test_sums_are_named_only_to_stores_that_have_named_them(service: Scripted, named: bool) -> None:
    """Who does not know the sums of parts refuses a document that has them."""

    def answer(asked: Asked) -> Said | None:
        query = parse_qs(urlsplit(asked.target).query, keep_blank_values=True)
        if "uploads" in query:
            return Said(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                             b"</InitiateMultipartUploadResult>")  # fmt: skip
        if asked.method == "PUT":
            told = asked.headers["x-amz-checksum-crc32"]
            return Said(200, b"", {**ETAG, **({"x-amz-checksum-crc32": told} if named else {})})
        if asked.method == "POST":
            return Said(200, b"<CompleteMultipartUploadResult><ETag>e</ETag>"
                             b"</CompleteMultipartUploadResult>")  # fmt: skip
        return None

    service.refuse = answer
    service.store().put("large", [_LARGE])
    joined = service.asked[-1]
    assert joined.method == "POST"
    assert joined.body.count(b"<PartNumber>") == 3
    assert joined.body.count(b"<ChecksumCRC32>") == (3 if named else 0)


def test_a_large_object_that_is_there_is_not_sent(service: Scripted) -> None:
    """Not all that heed the condition with one request do so when parts are joined."""
    with pytest.raises(AlreadyExistsError, match="'a'"):
        service.store().put("a", [_LARGE], if_absent=True)
    assert [asked.method for asked in service.asked] == ["HEAD"]
