"""The reading side: from an index to samples and batches, in an order that can be repeated."""

from __future__ import annotations

__all__: list[str] = []
