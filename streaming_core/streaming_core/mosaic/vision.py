"""Datasets of images, which are left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.vision is left out: subclass StreamingDataset, and apply the "
    "transforms in __getitem__"
)
raise ImportError(_MESSAGE, name=__name__)
