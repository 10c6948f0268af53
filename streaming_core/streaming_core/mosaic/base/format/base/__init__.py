"""What shards of all formats share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.mosaic._lazy import lazily

if TYPE_CHECKING:
    from streaming_core.mosaic.base.format.base import reader

__all__ = ["reader"]

__getattr__, __dir__ = lazily(__name__, {"reader": ""})
