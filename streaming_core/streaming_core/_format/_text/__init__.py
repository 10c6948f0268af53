"""JSON lines and separated values: samples as lines, found by a meta file's offsets."""

from streaming_core._format._text._gather import gather_text, no_text
from streaming_core._format._text._json import JSONColumns
from streaming_core._format._text._meta import shard_meta
from streaming_core._format._text._shard import TextShard, open_text_shard, text_columns
from streaming_core._format._text._xsv import XSVColumns, XSVFormat

__all__ = [
    "JSONColumns",
    "TextShard",
    "XSVColumns",
    "XSVFormat",
    "gather_text",
    "no_text",
    "open_text_shard",
    "shard_meta",
    "text_columns",
]
