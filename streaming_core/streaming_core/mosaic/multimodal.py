"""Datasets of videos, which are left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.multimodal is left out: subclass StreamingDataset, and "
    "decode the content in __getitem__"
)
raise ImportError(_MESSAGE, name=__name__)
