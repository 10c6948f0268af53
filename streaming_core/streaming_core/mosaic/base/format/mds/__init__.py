"""MDS shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.mosaic._lazy import lazily

if TYPE_CHECKING:
    from streaming_core import MDSWriter
    from streaming_core.mosaic.base.format.mds import encodings, reader, writer
    from streaming_core.mosaic.base.format.mds.reader import MDSReader

__all__ = ["MDSReader", "MDSWriter", "encodings", "reader", "writer"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        **dict.fromkeys(__all__, ""),
        "MDSWriter": "streaming_core",
        "MDSReader": f"{__name__}.reader",
    },
)
