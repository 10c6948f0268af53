"""From samples to what the trainer is given: transforms, batches, and one call for all of it."""

from streaming_reader._pipeline._assembly import Assembly
from streaming_reader._pipeline._rows import begin_samples
from streaming_reader._pipeline._transforms import (
    BatchTransform,
    RowFilter,
    RowTransform,
    Transforms,
)

__all__ = [
    "Assembly",
    "BatchTransform",
    "RowFilter",
    "RowTransform",
    "Transforms",
    "begin_samples",
]
