"""Stream data sets from object storage into training, and write them as MDS shards.

The public names of both sides, loaded when first used: `import streaming_core` itself costs next to
nothing, and imports neither numpy nor any optional dependency.

Example:
    >>> import streaming_core as streaming
    >>> issubclass(streaming.errors.SchemaError, streaming.StreamingError)
    True
"""

from __future__ import annotations

import importlib
import importlib.machinery
from typing import TYPE_CHECKING

from streaming_core._version import __version__

if TYPE_CHECKING:
    from streaming_core import errors, testing
    from streaming_core._format._mds import Encoding, mds_encodings
    from streaming_core._index import ShardTable, load_index
    from streaming_core._store import Store, open_store, register_store
    from streaming_core._world import World
    from streaming_core.errors import StreamingError
    from streaming_reader._pipeline import Transforms
    from streaming_reader._pipeline._config import dataloader_from_config
    from streaming_reader._pipeline._create import create_dataloader
    from streaming_reader._pipeline._packing import pack
    from streaming_reader._pipeline._text import chat_template, tokenize
    from streaming_reader.dataset import StreamingDataset
    from streaming_reader.loader import StreamingDataLoader
    from streaming_reader.local import LocalDataset
    from streaming_reader.stream import Stream, streams_registry
    from streaming_writer import (
        CSVWriter,
        JSONWriter,
        MDSWriter,
        TSVWriter,
        XSVWriter,
        merge_index,
    )

__all__ = [
    "CSVWriter",
    "Encoding",
    "JSONWriter",
    "LocalDataset",
    "MDSWriter",
    "ShardTable",
    "Store",
    "Stream",
    "StreamingDataset",
    "StreamingError",
    "TSVWriter",
    "Transforms",
    "World",
    "XSVWriter",
    "__version__",
    "chat_template",
    "create_dataloader",
    "dataloader_from_config",
    "errors",
    "load_index",
    "mds_encodings",
    "merge_index",
    "open_store",
    "pack",
    "register_store",
    "streams_registry",
    "testing",
    "tokenize",
]

if importlib.machinery.PathFinder.find_spec("torch") is not None:
    __all__ += ["StreamingDataLoader"]  # without torch, `import *` would fail

_SUBMODULES = frozenset({"errors", "testing"})
_HOMES = {
    "CSVWriter": "streaming_writer",
    "Encoding": "streaming_core._format._mds",
    "JSONWriter": "streaming_writer",
    "LocalDataset": "streaming_reader.local",
    "MDSWriter": "streaming_writer",
    "ShardTable": "streaming_core._index",
    "Store": "streaming_core._store",
    "Stream": "streaming_reader.stream",
    "StreamingDataLoader": "streaming_reader.loader",
    "StreamingDataset": "streaming_reader.dataset",
    "StreamingError": "streaming_core.errors",
    "TSVWriter": "streaming_writer",
    "Transforms": "streaming_reader._pipeline",
    "World": "streaming_core._world",
    "XSVWriter": "streaming_writer",
    "chat_template": "streaming_reader._pipeline._text",
    "create_dataloader": "streaming_reader._pipeline._create",
    "dataloader_from_config": "streaming_reader._pipeline._config",
    "load_index": "streaming_core._index",
    "mds_encodings": "streaming_core._format._mds",
    "merge_index": "streaming_writer",
    "open_store": "streaming_core._store",
    "pack": "streaming_reader._pipeline._packing",
    "register_store": "streaming_core._store",
    "streams_registry": "streaming_reader.stream",
    "tokenize": "streaming_reader._pipeline._text",
}


def _load(name: str) -> object:
    """Import what `name` stands for and keep it, so that this runs once per name."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        near = importlib.import_module("difflib").get_close_matches(name, __all__, n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else "dir(streaming_core) lists the public names"
        )
        msg = f"{msg}; {hint}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a visible __getattr__ would make type checkers accept any name
    __getattr__ = _load
