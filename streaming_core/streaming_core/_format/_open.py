"""From the raw bytes of a shard's files to its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core._format._arrow import open_arrow_shard
from streaming_core._format._mds import MDSShard
from streaming_core._format._text import open_text_shard
from streaming_core.errors import ShardSizeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._format._shard import Shard
    from streaming_core._index import FileInfo, ShardInfo
    from streaming_core._store import Buffer

__all__ = ["open_shard"]


def open_shard(
    info: ShardInfo, files: Mapping[str, Buffer], *, allow_unsafe: bool = False
) -> Shard:
    """Return the samples of the shard `info`, whose decompressed files are given by role.

    `files` has `raw`, and `raw_meta` where the format has one; the samples are views of them. Sizes
    and headers are checked before anything is allocated or decoded, samples when asked for.

    Raises:
        ShardCorruptError: The bytes do not follow the format or the index; names shard and byte.
        UnsafeEncodingError: A column's decoding can run code, and `allow_unsafe` is not given.
    """
    if info.schema.is_made:
        return open_arrow_shard(info, files["raw"])
    _check_size(info.raw, files["raw"])
    if info.raw_meta is None:
        return MDSShard(info, files["raw"], allow_unsafe=allow_unsafe)
    _check_size(info.raw_meta, files["raw_meta"])
    return open_text_shard(info, files["raw"], files["raw_meta"])


def _check_size(file: FileInfo, data: Buffer) -> None:
    size = memoryview(data).nbytes
    if size != file.bytes:
        msg = (
            f"{file.basename}: the file has {size} bytes, the index says {file.bytes}; it was cut "
            "short, or belongs to another version of the data set. Fetch or write it again"
        )
        raise ShardSizeError(msg)
