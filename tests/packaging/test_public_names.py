"""The public names: a new or vanished one is a decision, taken here."""

from __future__ import annotations

import importlib

import pytest

import streaming_core

PUBLIC = {
    "streaming_core": [
        "CSVWriter",
        "Encoding",
        "JSONWriter",
        "LocalDataset",
        "MDSWriter",
        "ShardTable",
        "Store",
        "Stream",
        "StreamingDataLoader",
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
    ],
    "streaming_core.errors": [
        "AccessDeniedError",
        "AlreadyExistsError",
        "CheckpointError",
        "ChecksumError",
        "DecompressionError",
        "IndexInvalidError",
        "IndexMissingError",
        "LastingError",
        "MissingColumnError",
        "MissingExtraError",
        "ObjectNotFoundError",
        "ObjectTooLargeError",
        "OrderError",
        "OutputBusyError",
        "OutputNotEmptyError",
        "Problem",
        "RangeError",
        "ResumeError",
        "SampleError",
        "SchemaError",
        "ShardCorruptError",
        "ShardFetchError",
        "ShardSizeError",
        "SourceChangedError",
        "SourceFormatError",
        "StoreBusyError",
        "StoreError",
        "StreamingError",
        "StreamsError",
        "UnsafeEncodingError",
        "UnsafeKeyError",
        "WaitTimeoutError",
        "WriterStateError",
    ],
    "streaming_core.testing": [
        "Action",
        "Call",
        "Delay",
        "Die",
        "Fault",
        "FaultStore",
        "FlipBit",
        "Kill",
        "LatencyStore",
        "LoseResponse",
        "MemoryStore",
        "Raise",
        "StoreContract",
        "Truncate",
        "Verb",
    ],
    "streaming_reader": [],
    "streaming_writer": [
        "CSVWriter",
        "JSONWriter",
        "MDSWriter",
        "TSVWriter",
        "XSVWriter",
        "merge_index",
    ],
}


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_public_names_are_these(module: str) -> None:
    """`__all__` is the pinned list, and each name in it is there."""
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == PUBLIC[module]
    assert not [name for name in loaded.__all__ if not hasattr(loaded, name)]


@pytest.mark.parametrize("name", PUBLIC["streaming_core"])
def test_the_facade_hands_out_the_same_objects_each_time(name: str) -> None:
    """A name loaded late is the object that its home module holds, and stays it."""
    first = getattr(streaming_core, name)
    home = getattr(first, "__module__", None)
    assert getattr(streaming_core, name) is first
    if isinstance(home, str):
        assert getattr(importlib.import_module(home), name) is first
