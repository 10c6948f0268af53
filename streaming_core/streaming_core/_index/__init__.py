"""The index of a data set: read and validate, hold in columns, write, merge."""

from __future__ import annotations

from streaming_core._index._columns import require_same_columns
from streaming_core._index._dump import dump_index, dump_table
from streaming_core._index._judge import INDEX_NAME
from streaming_core._index._load import SINGLE_MEDIA, is_media, load_index, read_index
from streaming_core._index._merge import merge_tables
from streaming_core._index._packed import PackedStrings
from streaming_core._index._parse import MAX_INDEX_BYTES, parse_index
from streaming_core._index._schema import FORMATS, META_FORMATS, ShardFormat, ShardSchema
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileInfo, FileRole, ShardInfo
from streaming_core._index._table import ShardTable

__all__ = [
    "FORMATS",
    "INDEX_NAME",
    "MAX_INDEX_BYTES",
    "META_FORMATS",
    "ROLES",
    "ROLE_KEYS",
    "SINGLE_MEDIA",
    "FileInfo",
    "FileRole",
    "PackedStrings",
    "ShardFormat",
    "ShardInfo",
    "ShardSchema",
    "ShardTable",
    "dump_index",
    "dump_table",
    "is_media",
    "load_index",
    "merge_tables",
    "parse_index",
    "read_index",
    "require_same_columns",
]
