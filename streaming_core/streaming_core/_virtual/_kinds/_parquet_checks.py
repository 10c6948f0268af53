"""Which parts of a Parquet footer Arrow's library can be asked about without ending the process.

Of chunks that are encrypted, and of some that are broken, it throws errors that no interpreter
catches, as soon as one is looked at. Only where it makes ready to read them are these caught. So it
is told to read no row at all of a file that is nothing but a place in memory: that takes less time
than parsing the footer did.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_groups", "unreadable_leaves"]

_ALL_ROWS: Final = 1 << 62


def check_groups(metadata: Any) -> None:  # noqa: ANN401 - of an optional dependency
    """Raise `ValueError` if a row group must not be looked at."""
    why = _refused(_reader(metadata, 1), metadata, (), _ALL_ROWS)
    if why:
        raise ValueError(why)


def unreadable_leaves(metadata: Any, size: int) -> dict[int, str]:  # noqa: ANN401 - see above
    """Return which leaves of the schema must not be looked at in some row group, and why.

    `size` is that of the file; `check_groups` has found nothing.
    """
    reader = _reader(metadata, size)
    leaves = range(metadata.num_columns)
    if not _refused(reader, metadata, leaves, 0):
        return {}
    found = {at: _refused(reader, metadata, (at,), 0) for at in leaves}
    return {at: why for at, why in found.items() if why}


def _reader(metadata: Any, size: int) -> Any:  # noqa: ANN401 - see above
    """Return what would read a file of which there are no bytes but zeros that take no room."""
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    nothing = mmap.mmap(-1, max(1, size), flags=flags, prot=mmap.PROT_READ)
    source = arrow.BufferReader(arrow.py_buffer(nothing))
    # Only buffering ahead looks at all chunks first; of a buffer it copies nothing.
    return parquet.ParquetFile(source, metadata=metadata, pre_buffer=True).reader


def _refused(reader: Any, metadata: Any, leaves: Sequence[int], rows: int) -> str:  # noqa: ANN401 - see above
    """Return why leaves cannot be read, empty if they can."""
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    groups = list(range(metadata.num_row_groups))
    if not groups or (not rows and not leaves):
        return ""
    try:
        next(
            reader.iter_batches(
                rows, row_groups=groups, column_indices=list(leaves), use_threads=False
            ),
            None,
        )
    except (arrow.ArrowException, OSError) as error:
        return str(error) or type(error).__name__
    return ""
