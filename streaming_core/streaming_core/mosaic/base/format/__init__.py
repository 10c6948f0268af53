"""Writers and readers of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.mosaic._lazy import lazily

if TYPE_CHECKING:
    from streaming_core import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
    from streaming_core.mosaic.base.format import base, index, json, mds, xsv
    from streaming_core.mosaic.base.format.base.reader import FileInfo, Reader, reader_from_json
    from streaming_core.mosaic.base.format.index import get_index_basename

__all__ = [
    "CSVWriter",
    "FileInfo",
    "JSONWriter",
    "MDSWriter",
    "Reader",
    "TSVWriter",
    "XSVWriter",
    "base",
    "get_index_basename",
    "index",
    "json",
    "mds",
    "reader_from_json",
    "xsv",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        **dict.fromkeys(__all__, "streaming_core"),
        **dict.fromkeys(("base", "index", "json", "mds", "xsv"), ""),
        **dict.fromkeys(("FileInfo", "Reader", "reader_from_json"), f"{__name__}.base.reader"),
        "get_index_basename": f"{__name__}.index",
    },
)
