"""Data that nobody converted: files of other formats, read as if they were shards."""

from __future__ import annotations

from streaming_core._virtual._build import build_index
from streaming_core._virtual._discover import Place, chosen_files, kinds_of, place_of
from streaming_core._virtual._index import VirtualIndex
from streaming_core._virtual._index_file import dump, parse
from streaming_core._virtual._kinds import kind_names, kind_of_name, open_kind
from streaming_core._virtual._model import Ask, Kind, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core._virtual._normal import Nulls, check_nulls
from streaming_core._virtual._view import Decoder, View

__all__ = [
    "Ask",
    "Decoder",
    "Kind",
    "Nulls",
    "Piece",
    "Place",
    "Scan",
    "SourceFile",
    "SourceReader",
    "Unit",
    "View",
    "VirtualIndex",
    "build_index",
    "check_nulls",
    "chosen_files",
    "dump",
    "kind_names",
    "kind_of_name",
    "kinds_of",
    "open_kind",
    "parse",
    "place_of",
]
