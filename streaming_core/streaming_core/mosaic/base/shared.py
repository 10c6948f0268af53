"""Shared memory, which is left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.base.shared is left out: nothing is shared through /dev/shm, "
    "so nothing can be left there. Remove calls that look for its blocks or clean them "
    "up"
)
raise ImportError(_MESSAGE, name=__name__)
