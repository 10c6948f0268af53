"""Our Shared Key signature equals that of Azure's own package."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from streaming_core._store._azure._sign import authorization
from streaming_core._store._http import query_text

_DATE = "Fri, 02 Jan 2026 00:00:00 GMT"
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
_NAMES = st.lists(_TEXT.filter(lambda text: text not in {".", ".."}), min_size=1, max_size=4)
_QUERY = st.dictionaries(
    st.sampled_from(["blockid", "comp", "include", "marker", "maxresults", "prefix", "restype"]),
    _TEXT,
)
_ASCII = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
_HEADERS = st.dictionaries(
    st.sampled_from(
        ["Content-MD5", "Content-Type", "If-Match", "If-None-Match", "Range", "x-ms-blob-type",
         "x-ms-client-request-id", "x-ms-delete-snapshots", "x-ms-meta-a", "x-ms-version"]
    ),
    _ASCII,
)  # fmt: skip


def _theirs(account: str, key: bytes, method: str, url: str, headers: dict[str, str]) -> str:
    from azure.core.pipeline import PipelineContext, PipelineRequest
    from azure.core.pipeline.transport import HttpRequest
    from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

    make: Any = SharedKeyCredentialPolicy
    policy = make(account, base64.b64encode(key).decode())
    request = HttpRequest(method, url, headers=headers)
    policy.on_request(PipelineRequest(request, PipelineContext(None)))
    return str(request.headers["Authorization"])


@given(
    account=st.from_regex(r"[a-z0-9]{3,24}", fullmatch=True),
    key=st.binary(min_size=1, max_size=64),
    method=st.sampled_from(["GET", "HEAD", "PUT", "DELETE"]),
    names=_NAMES,
    query=_QUERY,
    headers=_HEADERS,
    length=st.integers(0, 1 << 40),
)
def test_signs_as_azure_does(
    account: str,
    key: bytes,
    method: str,
    names: list[str],
    query: dict[str, str],
    headers: dict[str, str],
    length: int,
) -> None:
    """Any method, path, query, headers and length give the signature that Azure's client gives."""
    path = "/" + quote("/".join(names), safe="/-_.~")
    headers |= {"x-ms-date": _DATE}
    url = f"https://{account}.blob.core.windows.net{path}"
    url += f"?{query_text(query)}" if query else ""
    ours = authorization(
        account, key, method=method, path=path, query=query, headers=headers, length=length
    )
    # Their client never sends `Range`; the place of its value in the text is called otherwise.
    sent = {"byte_range" if name == "Range" else name: text for name, text in headers.items()}
    sent["Content-Length"] = str(length)
    assert ours == _theirs(account, key, method, url, sent)
