"""Everything that can be wrong with one shard, found in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core._codec import digest, digests, parse_compression
from streaming_core._format import open_shard
from streaming_core._read import SUM_ALGORITHM, SUMS
from streaming_core.cli._rows import Rows
from streaming_core.cli._values import is_image
from streaming_core.errors import MissingExtraError, ObjectNotFoundError, StreamingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming_core._index import FileInfo, ShardInfo
    from streaming_core._store import Buffer, Store

__all__ = ["CheckOptions", "Finding", "ShardResult", "check_shard"]

_MAX_SAMPLES_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or, as a warning, odd."""

    kind: str
    """Machine-readable: `missing`, `shard-size`, `checksum`, `decompression`, `shard-corrupt`, …"""
    text: str
    """What was required and what came."""
    shard: int | None = None
    """Position of the shard in the data set, from 0; None where it concerns none."""
    file: str | None = None
    """The file, or the JSON path in the index."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How closely to look."""

    fast: bool = False
    """Only whether each file is there with its size."""
    allow_unsafe: bool = False
    """Decode columns too whose decoding can run code."""
    sums: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hash of each file, from the file of sums."""


@dataclass(slots=True)
class ShardResult:
    """What came out of one shard."""

    findings: list[Finding] = field(default_factory=list[Finding])
    """All that is wrong with it."""
    num_bytes: int = 0
    """Bytes of its files that were looked at."""
    num_decoded: int = 0
    """Samples that decoded."""
    undecoded: tuple[str, ...] = ()
    """Columns that were not decoded, because that could run code."""


def check_shard(
    store: Store, info: ShardInfo, options: CheckOptions, sizes: Mapping[str, int]
) -> ShardResult:
    """Return all that is wrong with the shard `info`; any thread may call it.

    `sizes` tells the sizes of the files that a listing has shown; others are asked for one by one.
    Holds the shard's files, compressed and not, and nothing else. Only what no shard is to blame
    for is raised: `MissingExtraError`, and what a pickle does where that was allowed.
    """
    result = ShardResult()
    files: dict[str, Buffer] = {}
    for role, raw, packed in (
        ("raw", info.raw, info.zip),
        ("raw_meta", info.raw_meta, info.zip_meta),
    ):
        if raw is None:
            continue
        try:
            data = _checked_file(store, info, raw, packed, options, sizes, result)
        except MissingExtraError:
            raise
        except StreamingError as error:
            result.findings.append(_finding(error, info, packed or raw))
        else:
            if data is not None:
                files[role] = data
    if len(files) == (1 if info.raw_meta is None else 2):
        _check_samples(info, files, options, result)
    return result


def _checked_file(
    store: Store,
    info: ShardInfo,
    raw: FileInfo,
    packed: FileInfo | None,
    options: CheckOptions,
    sizes: Mapping[str, int],
    result: ShardResult,
) -> bytes | None:
    """Return the raw bytes of a file, or None if there are none worth decoding."""
    file = packed or raw
    try:
        size = sizes.get(file.basename)
        size = store.head(file.basename).size if size is None else size
        if size != file.bytes:
            text = f"the file has {size} bytes, the index says {file.bytes}"
            result.findings.append(Finding("shard-size", text, info.index, file.basename))
            return None
        result.num_bytes += size
        if options.fast:
            return None
        data = store.get(file.basename, max_bytes=file.bytes)
    except ObjectNotFoundError:
        text = "the file is not there"
        result.findings.append(Finding("missing", text, info.index, file.basename))
        return None
    result.findings += _wrong_hashes(info, file, data, options.sums.get(file.basename))
    codec = parse_compression(info.schema.compression)
    if packed is None or codec is None:
        return data
    expanded = codec.decompress(data, raw.bytes, where=file.basename)
    result.findings += _wrong_hashes(info, raw, expanded, None)
    return expanded


def _wrong_hashes(
    info: ShardInfo, file: FileInfo, data: Buffer, wanted: str | None
) -> Iterator[Finding]:
    if wanted is not None and (came := digest(SUM_ALGORITHM, [data])) != wanted.lower():
        text = f"the {SUM_ALGORITHM} is {came}, {SUMS} says {wanted}"
        yield Finding("checksum", text, info.index, file.basename)
    for name, came in digests(list(file.hashes), [data]).items():
        if came != file.hashes[name].lower():
            text = f"the {name} is {came}, the index says {file.hashes[name]}"
            yield Finding("checksum", text, info.index, file.basename)


def _check_samples(
    info: ShardInfo, files: Mapping[str, Buffer], options: CheckOptions, result: ShardResult
) -> None:
    """Check header and offsets, and decode every sample."""
    try:
        # Opening decodes nothing; what is decoded is decided by `Rows`.
        shard = open_shard(info, files, allow_unsafe=True)
        rows = Rows(info, shard, allow_unsafe=options.allow_unsafe)
    except StreamingError as error:
        result.findings.append(_finding(error, info, info.raw))
        return
    result.undecoded = rows.undecoded
    num_wrong = 0
    for row in range(len(rows)):
        try:
            _load_images(rows.row(row))
        except MissingExtraError:
            raise
        except StreamingError as error:
            num_wrong += 1
            if num_wrong <= _MAX_SAMPLES_LISTED:
                result.findings.append(_finding(error, info, info.raw))
        except (OSError, SyntaxError, ValueError) as error:  # Pillow, on the pixels of a picture
            num_wrong += 1
            if num_wrong <= _MAX_SAMPLES_LISTED:
                text = f"sample {row}: {error}"
                result.findings.append(
                    Finding("shard-corrupt", text, info.index, info.raw.basename)
                )
        else:
            result.num_decoded += 1
    if num_wrong > _MAX_SAMPLES_LISTED:
        text = f"{num_wrong - _MAX_SAMPLES_LISTED} more samples do not decode"
        result.findings.append(Finding("shard-corrupt", text, info.index, info.raw.basename))


def _load_images(sample: Mapping[str, Any]) -> None:
    """Decode the pixels of pictures, which are opened lazily and may be cut short."""
    for value in sample.values():
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        for image in filter(is_image, items):
            cast("Any", image).load()


def _finding(error: StreamingError, info: ShardInfo, file: FileInfo) -> Finding:
    """Return what `error` says, without the file's name that its message starts with."""
    text = str(error).removeprefix(file.basename).lstrip(",: ")
    return Finding(error.kind, text, info.index, file.basename)
