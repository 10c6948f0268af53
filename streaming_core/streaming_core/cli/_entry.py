"""The index entry of a shard, told from its files alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core._codec import digests, parse_compression
from streaming_core._units import format_bytes
from streaming_core.cli._inflate import Beginning, inflate
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._codec import Compression
    from streaming_core._store import Store
    from streaming_core.cli._scan import Found

__all__ = ["rebuild_entry"]

_WORD: Final = 4
_MAX_CONFIG_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class _Head:
    """What a shard says of itself: in its header, or in its meta file."""

    samples: int
    end: int
    """Where the last sample ends, which is the size of the data file."""
    config: dict[str, Any]


def rebuild_entry(store: Store, found: Found, *, max_bytes: int) -> dict[str, Any]:
    """Return the entry that the writer of the shard `found` put into the index.

    Headers are read as far as needed; a whole file only where it is compressed or hashed. Samples
    are not looked at. Raises `ShardCorruptError` where the files do not say what is needed, or
    a decompressed file would have more than `max_bytes`.
    """
    if found.format == "mds":
        head = _mds_head(store, found, max_bytes)
    else:
        head = _meta_head(store, found, max_bytes)
    name = next(iter(found.data.values()))
    if head.config.get("format") != found.format:
        inside = head.config.get("format")
        msg = f"{name}: the name says {found.format}, the settings inside {inside!r:.40}"
        raise ShardCorruptError(msg)
    if head.end > max_bytes:
        msg = (
            f"{name}: has {format_bytes(head.end)} decompressed, more than the "
            f"{format_bytes(max_bytes)} allowed; raise it with --max-shard-bytes"
        )
        raise ShardCorruptError(msg)
    codec = parse_compression(head.config.get("compression"))
    hashes = _hash_names(head.config, name)
    entry = {**head.config, "samples": head.samples}
    for role, files in (("data", found.data), ("meta", found.meta)):
        if role == "data" or found.format != "mds":
            size = head.end if role == "data" else None
            raw, packed = _describe_file(store, files, codec, hashes, size, max_bytes)
            entry[f"raw_{role}"], entry[f"zip_{role}"] = raw, packed
    return entry


def _describe_file(
    store: Store,
    files: dict[str, str],
    codec: Compression | None,
    hashes: list[str],
    size: int | None,
    max_bytes: int,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the entries of the raw and the compressed file; `size` is the raw one's, if known."""
    key = files.get(codec.extension if codec else "")
    if key is None:
        have = ", ".join(files.values())
        told = codec.text if codec else None
        msg = f"{have}: the settings inside say compression {told!r}, the name does not"
        raise ShardCorruptError(msg)
    if codec is None:
        stored = store.head(key).size
        data = store.get(key, max_bytes=stored) if hashes else b""
        return {"basename": key, "bytes": stored, "hashes": digests(hashes, [data])}, None
    packed = store.get(key)
    raw = b""
    if size is None:
        raw = inflate(codec, packed, max_bytes, where=key)
        size = len(raw)
    elif hashes:
        raw = codec.decompress(packed, size, where=key)
    name = key.removesuffix(f".{codec.extension}")
    return (
        {"basename": name, "bytes": size, "hashes": digests(hashes, [raw])},
        {"basename": key, "bytes": len(packed), "hashes": digests(hashes, [packed])},
    )


def _mds_head(store: Store, found: Found, max_bytes: int) -> _Head:
    # A plain file beside a compressed one is what a reader left; both have the same header.
    code, key = max(found.data.items())
    codec = parse_compression(code or None)
    if codec is None:
        size = store.head(key).size

        def read(count: int) -> bytes:
            return store.get_ranges(key, [(0, min(count, size))])[0]
    else:
        read = Beginning(codec, store.get(key), max_bytes, where=key).read
    return _parse_head(read, key, whole=False)


def _meta_head(store: Store, found: Found, max_bytes: int) -> _Head:
    code, key = max(found.meta.items())
    codec = parse_compression(code or None)
    meta = store.get(key, max_bytes=max_bytes)
    if codec is not None:
        meta = inflate(codec, meta, max_bytes, where=key)
    return _parse_head(lambda count: meta[:count], key, whole=True)


def _parse_head(read: Callable[[int], bytes], key: str, *, whole: bool) -> _Head:
    """Return count, end and settings, which run to the first sample, or if `whole` to the end."""

    def word(data: bytes, number: int) -> int:
        at = _WORD * number
        if len(data) < at + _WORD:
            msg = f"{key}: required {at + _WORD} bytes of header, came {len(data)}"
            raise ShardCorruptError(msg)
        return int.from_bytes(data[at : at + _WORD], "little")

    samples = word(read(_WORD), 0)
    start = _WORD * (samples + 2)
    words = read(start)
    end = word(words, samples + 1)
    stop = start + _MAX_CONFIG_BYTES if whole else word(words, 1)
    if not start < stop <= start + _MAX_CONFIG_BYTES:
        msg = f"{key}: the header has {start} bytes, but samples start at byte {stop}"
        raise ShardCorruptError(msg)
    try:
        config = json.loads(read(stop)[start:])
    except (ValueError, RecursionError) as error:
        msg = f"{key}, byte {start}: the settings are not JSON: {error}"
        raise ShardCorruptError(msg) from error
    if not isinstance(config, dict):
        msg = f"{key}, byte {start}: the settings are no object: {config!r:.60}"
        raise ShardCorruptError(msg)
    return _Head(samples, end, cast("dict[str, Any]", config))


def _hash_names(config: dict[str, Any], name: str) -> list[str]:
    hashes = config.get("hashes")
    if not isinstance(hashes, list):
        msg = f"{name}: required a list of hashes in the settings, came {hashes!r:.60}"
        raise ShardCorruptError(msg)
    return [str(item) for item in cast("list[object]", hashes)]
