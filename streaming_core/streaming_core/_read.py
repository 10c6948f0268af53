"""One shard from a store to its samples, everything checked on the way; no cache, no threads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streaming_core._codec import digest, digests, hash_names, parse_compression
from streaming_core._format import Shard, open_shard
from streaming_core.errors import ChecksumError, ObjectTooLargeError, ShardSizeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming_core._index import FileInfo, ShardInfo, ShardTable
    from streaming_core._store import Buffer, Store

__all__ = ["SUMS", "SUM_ALGORITHM", "fetch_shard", "format_sums", "iterate_samples", "parse_sums"]

SUMS: Final = "checksums.xxh128"
"""The file beside the index with a hash of every shard file, as `xxhsum` writes and checks them."""
SUM_ALGORITHM: Final = "xxh3_128"
_SUM_LINE: Final = re.compile(r"([0-9a-fA-F]{32})  ([^\n]+)\n")


def parse_sums(data: bytes) -> dict[str, str]:
    """Return the hash of each file by name; `ChecksumError` names the line that is none.

    Example:
        >>> parse_sums(format_sums({"shard.00000.mds": "99aa06d3014798d86001c324468d497f"}))
        {'shard.00000.mds': '99aa06d3014798d86001c324468d497f'}
    """
    text = data.decode(errors="replace")
    sums: dict[str, str] = {}
    at = 0
    while at < len(text):
        line = _SUM_LINE.match(text, at)
        if line is None:
            msg = (
                f"{SUMS}, line {len(sums) + 1}: wanted a hash of 32 hex digits, two spaces and a "
                f"file's name, came {text[at : at + 80]!r}. Write the file again with xxhsum -H2"
            )
            raise ChecksumError(msg)
        sums[line[2]] = line[1].lower()
        at = line.end()
    return sums


def format_sums(sums: Mapping[str, str]) -> bytes:
    r"""Return the lines that `xxhsum --check` reads.

    Example:
        >>> format_sums({"a": "99aa06d3014798d86001c324468d497f"})
        b'99aa06d3014798d86001c324468d497f  a\n'
    """
    return "".join(f"{value}  {name}\n" for name, value in sums.items()).encode()


def fetch_shard(
    store: Store,
    info: ShardInfo,
    *,
    sums: Mapping[str, str] | None = None,
    allow_unsafe: bool = False,
) -> Shard:
    """Return the samples of a shard, read whole from `store`.

    Sizes, the hashes in the index, and those in `sums` are checked before anything is decompressed
    or decoded.

    Raises:
        ObjectNotFoundError: A file is not there.
        ShardCorruptError: A file is not what the index or `sums` promise.
    """
    codec = parse_compression(info.schema.compression)
    files: dict[str, Buffer] = {}
    for role, raw, packed in (
        ("raw", info.raw, info.zip),
        ("raw_meta", info.raw_meta, info.zip_meta),
    ):
        if raw is None:
            continue
        data = _get(store, packed or raw, sums or {})
        if packed is not None and codec is not None:
            data = codec.decompress(data, raw.bytes, where=packed.basename)
            _check_hashes(raw, data)
        files[role] = data
    return open_shard(info, files, allow_unsafe=allow_unsafe)


def _get(store: Store, file: FileInfo, sums: Mapping[str, str]) -> bytes:
    try:
        data = store.get(file.basename, max_bytes=file.bytes)
    except ObjectTooLargeError:
        data = None
    if data is None or len(data) != file.bytes:
        size = "more" if data is None else len(data)
        msg = (
            f"{file.basename}: the file in {store.url} has {size} bytes, the index says "
            f"{file.bytes}; it was cut short, or belongs to another version of the data set. Fetch "
            "or write it again"
        )
        raise ShardSizeError(msg)
    wanted = sums.get(file.basename)
    if wanted is not None and (came := digest(SUM_ALGORITHM, [data])) != wanted:
        msg = (
            f"{file.basename}: the {SUM_ALGORITHM} is {came}, {SUMS} says {wanted}; its bytes have "
            "changed since it was written"
        )
        raise ChecksumError(msg)
    _check_hashes(file, data)
    return data


def _check_hashes(file: FileInfo, data: Buffer) -> None:
    known = [name for name in file.hashes if name in hash_names()]
    for name, came in digests(known, [data]).items():
        if came != file.hashes[name].lower():
            msg = (
                f"{file.basename}: the {name} is {came}, the index says {file.hashes[name]}; "
                "its bytes have changed since it was written"
            )
            raise ChecksumError(msg)


def iterate_samples(
    store: Store, table: ShardTable, *, allow_unsafe: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield all samples in order, one shard in memory at a time."""
    for i in range(table.num_shards):
        yield from fetch_shard(store, table.shard(i), allow_unsafe=allow_unsafe)
