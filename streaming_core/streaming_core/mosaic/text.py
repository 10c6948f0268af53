"""Datasets of text, which are left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.text is left out: subclass StreamingDataset and tokenize in "
    "__getitem__, or give tokenize(...) of streaming_core as transform of "
    "create_dataloader"
)
raise ImportError(_MESSAGE, name=__name__)
