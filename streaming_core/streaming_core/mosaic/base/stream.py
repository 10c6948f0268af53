"""Streams, and the kinds of them that were registered."""

from __future__ import annotations

from streaming_core.mosaic._lazy import lazily
from streaming_reader.stream import Stream, streams_registry

__all__ = ["Stream", "streams_registry"]

__getattr__, __dir__ = lazily(
    __name__,
    dict.fromkeys(__all__, __name__),
    {
        "download_file": (
            "register_store(scheme, opener) of streaming_core adds a store for URLs of your own, "
            "and open_store(folder).get(name) returns the bytes of a file"
        ),
    },
)
