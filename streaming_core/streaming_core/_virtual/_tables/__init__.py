"""Tables of files - Iceberg, Delta Lake - pinned to one version, planned once, then read as files.

A plan says which files, which of their rows and which columns; the libraries of those tables are
needed to make one, never to read by it.
"""

from __future__ import annotations

from streaming_core._virtual._tables._delta import open_delta, plan_delta
from streaming_core._virtual._tables._find import (
    TABLE_FORMATS,
    TABLE_OPTIONS,
    find_table,
    open_root,
)
from streaming_core._virtual._tables._iceberg import (
    open_iceberg,
    plan_iceberg,
    storage_options_of,
)
from streaming_core._virtual._tables._layout import Layout
from streaming_core._virtual._tables._plan import (
    PlannedFile,
    TablePlan,
    dump,
    keep_bits,
    parse,
)

__all__ = [
    "TABLE_FORMATS",
    "TABLE_OPTIONS",
    "Layout",
    "PlannedFile",
    "TablePlan",
    "dump",
    "find_table",
    "keep_bits",
    "open_delta",
    "open_iceberg",
    "open_root",
    "parse",
    "plan_delta",
    "plan_iceberg",
    "storage_options_of",
]
