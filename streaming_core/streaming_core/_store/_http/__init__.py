"""Stores behind HTTP: connections, reading, errors; and plain web servers."""

from streaming_core._store._http._gate import (
    Call,
    Gate,
    Refusal,
    RefusedError,
    connection_options,
    query_text,
    sent,
)
from streaming_core._store._http._parallel import in_parallel, send_parts
from streaming_core._store._http._reading import object_etag
from streaming_core._store._http._store import HttpStore
from streaming_core._store._http._web import WebStore, web_from_url
from streaming_core._store._http._wire import Answer, Origin, Timeouts

__all__ = [
    "Answer",
    "Call",
    "Gate",
    "HttpStore",
    "Origin",
    "Refusal",
    "RefusedError",
    "Timeouts",
    "WebStore",
    "connection_options",
    "in_parallel",
    "object_etag",
    "query_text",
    "send_parts",
    "sent",
    "web_from_url",
]
