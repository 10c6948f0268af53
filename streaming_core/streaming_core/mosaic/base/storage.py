"""Downloaders and uploaders, which are left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.base.storage is left out: downloads and uploads are not made "
    "by classes that can be replaced. open_store(folder) of streaming_core lists, "
    "reads, and writes files, and register_store(scheme, opener) adds a store for URLs "
    "of your own"
)
raise ImportError(_MESSAGE, name=__name__)
