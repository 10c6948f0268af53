"""Bytes in several pieces, seen without copying."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Buffer", "byte_view", "byte_views", "gathered"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes; a NumPy array comes as `array.data`, of any shape and item type."""


def byte_view(buffer: Buffer) -> memoryview:
    """Return `buffer` as a flat view of its bytes.

    Example:
        >>> import array
        >>> len(byte_view(memoryview(array.array("H", [1, 2, 3]))))
        6
    """
    view = memoryview(buffer)
    # A view with a zero in its shape cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def byte_views(buffers: Iterable[Buffer]) -> list[memoryview]:
    """Return the buffers that hold anything, each as a flat view of its bytes."""
    return [view for view in map(byte_view, buffers) if len(view)]


def gathered(views: Sequence[memoryview]) -> memoryview:
    """Return all bytes in one view: the only view itself, or a fresh copy of several.

    Example:
        >>> bytes(gathered([memoryview(b"ab"), memoryview(b"c")]))
        b'abc'
    """
    if len(views) == 1:
        return views[0]
    # NumPy asks for huge pages, which makes filling 64 MiB about twice as fast as `b"".join`.
    whole = np.empty(sum(map(len, views)), np.uint8).data
    at = 0
    for view in views:
        whole[at : at + len(view)] = view
        at += len(view)
    return whole
