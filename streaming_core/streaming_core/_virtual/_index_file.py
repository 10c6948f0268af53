"""An index as bytes, and back: nothing of it is trusted, and the large part is not copied."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from streaming_core._index import PackedStrings
from streaming_core._virtual._filed import Filed, digest_of
from streaming_core._virtual._index import STEM_BYTES, VirtualIndex
from streaming_core.errors import IndexInvalidError, Problem

__all__ = ["MAX_SOURCE_INDEX_BYTES", "dump", "filed_index", "index_digest", "parse"]

MAX_SOURCE_INDEX_BYTES: Final = 4 << 30
"""The largest published index that is read."""
_VERSION: Final = 2


class _Document(msgspec.Struct, frozen=True):
    version: int
    kind: str
    options: dict[str, Any]
    pattern: str
    texts: dict[str, tuple[memoryview, memoryview]]
    arrays: dict[str, memoryview]
    schemas: list[bytes]
    dictionary: bytes
    metas: memoryview


_DOCUMENT: Final = msgspec.msgpack.Decoder(_Document)


_TEXTS: Final = ("keys", "etags", "constants")
_HIGH_BITS, _IN_CHARACTER = 0xC0, 0x80
"""Of a byte of UTF-8, and what they are where it is not the first of its character."""
_ARRAYS: Final[dict[str, type[np.generic]]] = {
    "sizes": np.int64,
    "schema_ids": np.int32,
    "files": np.int32,
    "samples": np.int64,
    "nbytes": np.int64,
    "numbers": np.int64,
    "parts": np.int64,
    "meta_offsets": np.int64,
    "meta_sizes": np.int64,
    "stems": np.uint8,
}


def dump(index: VirtualIndex) -> bytes:
    """Return the index as bytes; equal indexes give equal ones."""
    texts: dict[str, tuple[memoryview, memoryview]] = {}
    for name in _TEXTS:
        blob, offsets = getattr(index, name).buffers()
        texts[name] = (memoryview(blob), memoryview(offsets.astype("<i8").tobytes()))
    arrays = {
        name: memoryview(_little(getattr(index, name), kind).tobytes())
        for name, kind in _ARRAYS.items()
    }
    document = _Document(
        _VERSION,
        index.kind,
        dict(index.options),
        index.pattern,
        texts,
        arrays,
        list(index.schemas),
        index.dictionary,
        memoryview(index.metas),
    )
    return msgspec.msgpack.encode(document)


def parse(data: bytes | memoryview, where: str, filed: Filed | None = None) -> VirtualIndex:
    """Return the index in `data`, from `where`; `IndexInvalidError` if it cannot be trusted.

    It holds on to `data`.
    """
    try:
        document = _DOCUMENT.decode(data)
        texts: dict[str, Any] = {
            name: PackedStrings(bytes(blob), np.frombuffer(offsets, "<i8").astype(np.int64))
            for name, (blob, offsets) in document.texts.items()
        }
        arrays: dict[str, Any] = {
            name: np.frombuffer(document.arrays[name], np.dtype(kind).newbyteorder("<")).astype(
                kind
            )
            for name, kind in _ARRAYS.items()
        }
        index = VirtualIndex(
            kind=document.kind,
            options=document.options,
            schemas=tuple(document.schemas),
            metas=document.metas,
            dictionary=document.dictionary,
            pattern=document.pattern,
            filed=filed,
            **texts,
            **arrays,
        )
        _check(document.version, index)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        problem = Problem("$", f"not an index of virtual shards: {error!s:.300}", "value")
        raise IndexInvalidError(where, (problem,)) from error
    return index


def filed_index(filed: Filed) -> VirtualIndex:
    """Return the index that a file holds; `IndexInvalidError` if it cannot be trusted."""
    return parse(filed.mapped(), filed.path, filed)


def index_digest(index: VirtualIndex) -> str:
    """Return what tells an index from others: its files, their units, what is known of them."""
    return index.filed.digest if index.filed is not None else digest_of(dump(index))


def _little(values: Any, kind: type[np.generic]) -> Any:  # noqa: ANN401 - arrays
    return values.astype(np.dtype(kind).newbyteorder("<"))


def _check(version: int, index: VirtualIndex) -> None:
    """Raise `ValueError` if parts of an index do not fit, or it is of another version."""
    if version != _VERSION:
        msg = f"version {version}, this package reads {_VERSION}"
        raise ValueError(msg)
    files, units = index.num_files, len(index.files)
    wanted = {
        "sizes": files,
        "etags": files,
        "constants": files,
        "schema_ids": files,
        "samples": units,
        "nbytes": units,
        "numbers": units,
        "parts": units,
        "meta_offsets": files + 1,
        "meta_sizes": files,
        "stems": files * STEM_BYTES,
    }
    for name, count in wanted.items():
        if len(getattr(index, name)) != count:
            msg = f"{name} has {len(getattr(index, name))} entries where {count} belong"
            raise ValueError(msg)
    for name in _TEXTS:
        blob, offsets = getattr(index, name).buffers()
        if offsets[0] or (np.diff(offsets) < 0).any() or offsets[-1] != len(blob):
            msg = f"{name} are not cut where they end"
            raise ValueError(msg)
        blob.decode()
        starts = offsets[offsets < len(blob)]
        if (np.frombuffer(blob, np.uint8)[starts] & _HIGH_BITS == _IN_CHARACTER).any():
            msg = f"{name} are cut within characters"
            raise ValueError(msg)
    bad = (
        (units and not 0 <= int(index.files.min()) <= int(index.files.max()) < files)
        or (np.diff(index.files) < 0).any()
        or (files and not int(index.schema_ids.min()) >= 0)
        or (files and int(index.schema_ids.max()) >= len(index.schemas))
        or (index.samples < 1).any()
        or (index.sizes < 0).any()
        or (index.meta_sizes < 0).any()
        or (np.diff(index.meta_offsets) < 0).any()
        or int(index.meta_offsets[0]) != 0
        or int(index.meta_offsets[-1]) != len(index.metas)
    )
    if bad:
        msg = "its parts do not fit each other"
        raise ValueError(msg)
