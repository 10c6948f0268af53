"""The module names of mosaicml-streaming, over this package.

Replace `streaming` by `streaming_core.mosaic` in imports, and code that was written for it runs.
New code needs none of this: `streaming_core` has the same classes.

Nothing is imported before it is used. What is left out raises an `ImportError` that says what to do
instead.

Example:
    >>> from streaming_core.mosaic import MDSWriter, StreamingDataset
    >>> from streaming_core.mosaic.base.util import bytes_to_int
    >>> bytes_to_int("64mb")
    67108864
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core._version import __version__
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
    from streaming_core.mosaic import base

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
    "__version__",
    "base",
]

__getattr__, __dir__ = lazily(__name__, {**dict.fromkeys(__all__, "streaming_core"), "base": ""})
