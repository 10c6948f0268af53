"""Converters from Spark, which are left out."""

from __future__ import annotations

__all__: list[str] = []

_MESSAGE = (
    "streaming_core.mosaic.base.converters is left out: let each task write "
    "MDSWriter(out=folder, part=number), and join the parts with merge_index(folder). "
    "Parquet needs no conversion: Stream(remote=folder, format='parquet') reads it"
)
raise ImportError(_MESSAGE, name=__name__)
