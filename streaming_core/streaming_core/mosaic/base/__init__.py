"""Everything that `streaming.base` has, looked up when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.mosaic._lazy import lazily

if TYPE_CHECKING:
    from streaming_core import (
        CSVWriter,
        JSONWriter,
        LocalDataset,
        MDSWriter,
        Stream,
        StreamingDataLoader,
        StreamingDataset,
        TSVWriter,
        XSVWriter,
    )
    from streaming_core.mosaic.base import (
        array,
        compression,
        constant,
        dataloader,
        dataset,
        distributed,
        format,
        hashing,
        local,
        spanner,
        stream,
        util,
        world,
    )

__all__ = [
    "CSVWriter",
    "JSONWriter",
    "LocalDataset",
    "MDSWriter",
    "Stream",
    "StreamingDataLoader",
    "StreamingDataset",
    "TSVWriter",
    "XSVWriter",
    "array",
    "compression",
    "constant",
    "dataloader",
    "dataset",
    "distributed",
    "format",
    "hashing",
    "local",
    "spanner",
    "stream",
    "util",
    "world",
]

_CLASSES = [name for name in __all__ if not name.islower()]
__getattr__, __dir__ = lazily(
    __name__, {**dict.fromkeys(__all__, ""), **dict.fromkeys(_CLASSES, "streaming_core")}
)
