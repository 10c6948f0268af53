"""The order of samples: a pure function of data, settings, world, epoch and position."""

from __future__ import annotations

from streaming_reader._order._config import (
    BatchingMethod,
    OrderConfig,
    PartitionAlgo,
    SamplingMethod,
    ShuffleAlgo,
)
from streaming_reader._order._plan import EpochPlan, Place
from streaming_reader._order._quality import Quality, measure
from streaming_reader._order._resampled import resample_streams
from streaming_reader._order._sequence import ArrayMaker, in_memory
from streaming_reader._order._weights import Weight, Weights, resolve_weights

__all__ = [
    "ArrayMaker",
    "BatchingMethod",
    "EpochPlan",
    "OrderConfig",
    "PartitionAlgo",
    "Place",
    "Quality",
    "SamplingMethod",
    "ShuffleAlgo",
    "Weight",
    "Weights",
    "in_memory",
    "measure",
    "resample_streams",
    "resolve_weights",
]
