"""The index of a dataset."""

from __future__ import annotations

from streaming_core._index import INDEX_NAME

__all__ = ["get_index_basename"]


def get_index_basename() -> str:
    """Return the name of the file that has the index."""
    return INDEX_NAME
