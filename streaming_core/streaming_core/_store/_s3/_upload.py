"""Large objects: sent in parts side by side, joined at the end, given up as a whole."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming_core._store._http import (
    Call,
    RefusedError,
    Timeouts,
    object_etag,
    send_parts,
)
from streaming_core._store._s3._documents import (
    completed_etag,
    completion,
    upload_id,
    upload_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store._s3._documents import Upload
    from streaming_core._store._s3._gate import S3Gate

__all__ = ["PART_BYTES", "abort", "cut", "unfinished", "upload"]

_log = logging.getLogger("streaming_core.store")

PART_BYTES: Final = 8 << 20
"""The size of a part; larger only where there would be too many."""
_MOST_PARTS: Final = 10_000
_PARALLEL_PARTS: Final = 4
_DOCUMENT_BYTES: Final = 64 << 20
_NOT_FOUND: Final = 404
_GIVE_UP: Final = Timeouts(connect=3.0, stall=3.0)
"""Who gives up, because of an interrupt perhaps, does not wait for a line that is dead."""


def upload(
    gate: S3Gate,
    path: str,
    views: Sequence[memoryview],
    *,
    headers: Mapping[str, str],
    only: Mapping[str, str],
) -> str:
    """Send what the views make up, without copying it, and return the object's etag.

    `headers` go with the beginning, `only`, a condition, with the end. Whatever is raised, the
    store is told to forget the parts.
    """
    checked = {"x-amz-checksum-algorithm": "CRC32"} if gate.checksum(()) else {}
    with gate.send(Call("POST", path, {"uploads": ""}, {**checked, **headers})) as answer:
        name = upload_id(answer.read(_DOCUMENT_BYTES))
    try:
        size = sum(map(len, views))
        parts = cut(views, max(PART_BYTES, -(-size // _MOST_PARTS)))
        tasks = [
            partial(_part, gate, path, name, number, part) for number, part in enumerate(parts, 1)
        ]
        done = send_parts(tasks, _PARALLEL_PARTS)
        body = [memoryview(completion(done))]
        with gate.send(Call("POST", path, {"uploadId": name}, only, body, once=True)) as answer:
            etag = completed_etag(answer.read(_DOCUMENT_BYTES))
    except BaseException:
        _give_up(gate, path, name)
        raise
    return etag


def unfinished(gate: S3Gate, prefix: str) -> Iterator[Upload]:
    """Yield the uploads of keys starting with `prefix` that were begun and not ended."""
    query = {"uploads": "", "prefix": prefix, "encoding-type": "url"}
    more: Mapping[str, str] = {}
    while True:
        with gate.send(Call("GET", gate.root, {**query, **more})) as answer:
            page = upload_page(answer.read(_DOCUMENT_BYTES))
        yield from page.uploads
        if not page.next_query or page.next_query == more:
            return
        more = page.next_query


def abort(gate: S3Gate, path: str, name: str) -> None:
    """Let the store forget the parts of an upload; one that is not there any more is fine."""
    try:
        gate.send(Call("DELETE", path, {"uploadId": name})).close()
    except RefusedError as error:
        if error.status != _NOT_FOUND:
            raise


def cut(views: Sequence[memoryview], step: int) -> list[list[memoryview]]:
    """Return what the views make up in parts of `step` bytes, the last one shorter.

    Example:
        >>> [b"".join(part) for part in cut([memoryview(b"abc"), memoryview(b"defg")], 2)]
        [b'ab', b'cd', b'ef', b'g']
    """
    parts: list[list[memoryview]] = []
    room = 0
    for view in views:
        at = 0
        while at < len(view):
            if not room:
                parts.append([])
                room = step
            piece = view[at : at + room]
            parts[-1].append(piece)
            at += len(piece)
            room -= len(piece)
    return parts


def _part(
    gate: S3Gate, path: str, name: str, number: int, views: Sequence[memoryview]
) -> tuple[str, str]:
    crc = gate.checksum(views)
    query = {"partNumber": str(number), "uploadId": name}
    headers = {"x-amz-checksum-crc32": crc} if crc else {}
    with gate.send(Call("PUT", path, query, headers, views)) as answer:
        # Who does not know these sums takes a document that has them for a broken one.
        return object_etag(answer.headers), answer.headers.get("x-amz-checksum-crc32", "") and crc


def _give_up(gate: S3Gate, path: str, name: str) -> None:
    """Abort an upload after an error, which is the one to be told."""
    try:
        abort(gate.with_timeouts(_GIVE_UP), path, name)
    except Exception as error:  # noqa: BLE001 - the first error is the one that matters
        _log.warning(
            "%s: an unfinished upload stays, as aborting it failed (%s); S3Store.abort_uploads or "
            "a lifecycle rule of the bucket removes it",
            gate.bucket,
            type(error).__name__,
        )
