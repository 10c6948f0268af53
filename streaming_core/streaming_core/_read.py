"""One shard from a store to its samples, everything checked on the way; no cache, no threads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streaming_core._codec import Hasher, hash_names, parse_compression
from streaming_core._format import Shard, open_shard
from streaming_core.errors import ChecksumError, ObjectTooLargeError, ShardSizeError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streaming_core._index import FileInfo, ShardInfo, ShardTable
    from streaming_core._store import Buffer, Store

__all__ = [
    "SUMS",
    "SUM_ALGORITHM",
    "FileCheck",
    "fetch_shard",
    "format_sums",
    "iterate_samples",
    "parse_sums",
]

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
            check = FileCheck(raw)
            check.update(data)
            check.finish(packed.basename)
        files[role] = data
    return open_shard(info, files, allow_unsafe=allow_unsafe)


class FileCheck:
    """Judges the bytes of one file as they come: size, hash beside the index, hashes in the index.

    Example:
        >>> from streaming_core._index import FileInfo
        >>> check = FileCheck(FileInfo("a", 3, {"md5": "900150983cd24fb0d6963f7d28e17f72"}))
        >>> check.update(b"abc")
        >>> check.finish("memory://a")
    """

    __slots__ = ("_file", "_hasher", "_sum", "_wanted", "size")

    def __init__(
        self,
        file: FileInfo,
        sums: Mapping[str, str] | None = None,
        *,
        hashes: Collection[str] | None = None,
    ) -> None:
        """Compare with those `hashes` of the index that are named here, or all that are known."""
        known = hash_names() if hashes is None else hashes
        self._file = file
        self._sum = (sums or {}).get(file.basename)
        self._wanted = {name: text for name, text in file.hashes.items() if name in known}
        own = () if self._sum is None else (SUM_ALGORITHM,)
        self._hasher = Hasher({*self._wanted, *own})
        self.size = 0
        """Bytes so far."""

    @property
    def has_hash(self) -> bool:
        """Whether more is known than the size, so that a mixture of two versions would show."""
        return bool(self._wanted) or self._sum is not None

    def update(self, data: Buffer) -> None:
        """Add bytes."""
        self._hasher.update(data)
        self.size += len(data)

    def finish(self, place: str) -> None:
        """Raise `ShardSizeError` or `ChecksumError` unless this was the file; `place` had it."""
        file = self._file
        if self.size != file.bytes:
            raise self.wrong_size(self.size, place)
        found = self._hasher.hexdigests()
        wanted = [("the index", name, text) for name, text in self._wanted.items()]
        if self._sum is not None:
            wanted.insert(0, (SUMS, SUM_ALGORITHM, self._sum))
        for source, name, text in wanted:
            if found[name] != text.lower():
                msg = (
                    f"{file.basename}: the {name} in {place} is {found[name]}, {source} says "
                    f"{text}; either its bytes have changed since it was written, or the data set "
                    f"was written anew since {source} was read. Open it again: the index and the "
                    "hashes kept in the cache folder are then compared with the remote's. If it is "
                    "wrong still, write the file again"
                )
                raise ChecksumError(msg)

    def is_right(self) -> bool:
        """Tell whether all bytes came, and a hash says that they are the right ones."""
        try:
            self.finish("")
        except (ChecksumError, ShardSizeError):
            return False
        return self.has_hash

    def wrong_size(self, came: int | None, place: str) -> ShardSizeError:
        """Return the error that says how many bytes came from `place`; None for too many."""
        size = "more" if came is None else came
        return ShardSizeError(
            f"{self._file.basename}: the file in {place} has {size} bytes, the index says "
            f"{self._file.bytes}; it was cut short, or belongs to another version of the data set. "
            "Fetch or write it again"
        )


def _get(store: Store, file: FileInfo, sums: Mapping[str, str]) -> bytes:
    check = FileCheck(file, sums)
    try:
        data = store.get(file.basename, max_bytes=file.bytes)
    except ObjectTooLargeError as error:
        raise check.wrong_size(None, store.url) from error
    check.update(data)
    check.finish(store.url)
    return data


def iterate_samples(
    store: Store, table: ShardTable, *, allow_unsafe: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield all samples in order, one shard in memory at a time."""
    for i in range(table.num_shards):
        yield from fetch_shard(store, table.shard(i), allow_unsafe=allow_unsafe)
