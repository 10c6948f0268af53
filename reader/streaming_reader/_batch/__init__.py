"""Finished batches: columns of samples as rows, dicts, arrays, tensors or Arrow tables."""

from streaming_reader._batch._arrow import to_arrow
from streaming_reader._batch._formats import BatchFormat, as_format, check_format, to_dict
from streaming_reader._batch._jax import to_jax
from streaming_reader._batch._mixed import Batch, Mixed
from streaming_reader._batch._numpy import Offsets, Padded, RaggedForm, to_numpy
from streaming_reader._batch._own import batched_rows, made_as_format, rows_as_format
from streaming_reader._batch._torch import to_torch

__all__ = [
    "Batch",
    "BatchFormat",
    "Mixed",
    "Offsets",
    "Padded",
    "RaggedForm",
    "as_format",
    "batched_rows",
    "check_format",
    "made_as_format",
    "rows_as_format",
    "to_arrow",
    "to_dict",
    "to_jax",
    "to_numpy",
    "to_torch",
]
