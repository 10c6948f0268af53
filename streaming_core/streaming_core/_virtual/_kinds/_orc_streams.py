"""The streams of an ORC stripe: where they lie, and whether their lengths can be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core._virtual._kinds._orc_bytes import fields, numbers
from streaming_core._virtual._kinds._orc_lengths import sum_of_lengths
from streaming_core._virtual._kinds._orc_tail import Form, Stripe, expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Stream", "check_lengths", "spans_of", "streams_of"]

_DATA, _LENGTH, _DICTIONARY = 1, 2, 3
# Indexes and bloom filters: nothing is skipped within a stripe, so nobody reads them.
_INDEXES: Final = frozenset({6, 7, 8})
_ENCODINGS: Final = 4
_NEWER: Final = 2
_ITEMS_MOST: Final = 1 << 30
_CHUNK_HEAD: Final = 3


class Stream(NamedTuple):
    """Some of the bytes of one type's values."""

    start: int
    stop: int
    kind: int
    type: int
    encoding: int


def streams_of(
    stripe: Stripe, footer: bytes, form: Form, wanted: Sequence[int] | None
) -> list[Stream]:
    """Return the streams of some columns (all if None) as a stripe's footer tells them, in order.

    Raises `ValueError` if the footer is broken.
    """
    encodings: list[int] = []
    found: list[tuple[int, int, int, int]] = []
    at = stripe.offset
    for number, _, content, _ in fields(expanded(footer, form.codec, form.block)):
        said = numbers(content) if number in {1, 2} else {}
        if number == 1:
            begin, at = at, at + said.get(3, 0)
            found.append((begin, at, said.get(1, 0), said.get(2, 0)))
        elif number == 2:  # noqa: PLR2004 - how a type's values are encoded
            encodings.append(said.get(1, 0))
        elif number == 4:  # noqa: PLR2004 - encryption
            msg = "it is encrypted, which is not read"
            raise ValueError(msg)
    bad = [kind for kind in encodings if kind >= _ENCODINGS]
    if bad or len(encodings) != form.types or at > stripe.streams_end:
        msg = (
            f"{len(encodings)} types where there are {form.types}, encoded in ways {bad[:4]} that "
            f"nobody knows, or streams up to byte {at}, where they end at {stripe.streams_end}"
        )
        raise ValueError(msg)
    chosen = set(range(form.types))
    if wanted is not None:
        chosen = {0}.union(*(range(*form.columns[at]) for at in wanted))
    return [
        Stream(start, stop, kind, of, encodings[of])
        for start, stop, kind, of in found
        if of in chosen and kind not in _INDEXES and stop > start
    ]


def spans_of(streams: Sequence[Stream]) -> list[tuple[int, int]]:
    """Return where streams lie; those side by side as one."""
    found: list[tuple[int, int]] = []
    for stream in streams:
        if found and found[-1][1] == stream.start:
            found[-1] = (found[-1][0], stream.stop)
        else:
            found.append((stream.start, stream.stop))
    return found


def check_lengths(streams: Sequence[Stream], form: Form, read: Callable[[int, int], bytes]) -> None:
    """Raise `ValueError` if lengths of texts or lists cannot be; `read` takes a start and a stop.

    Libraries believe them, and write where they must not.
    """
    blobs = {(one.type, one.kind): one for one in streams}
    for stream in streams:
        if stream.kind != _LENGTH:
            continue
        data = expanded(read(stream.start, stream.stop), form.codec, form.block)
        total = sum_of_lengths(data, newer=stream.encoding >= _NEWER)
        blob = blobs.get((stream.type, _DICTIONARY if stream.encoding & 1 else _DATA))
        most = _ITEMS_MOST
        if blob is not None:
            most = _most_bytes(read(blob.start, blob.stop), form)
        if total > most:
            msg = f"lengths of {total} in all, where there can be {most} at most"
            raise ValueError(msg)


def _most_bytes(data: bytes, form: Form) -> int:
    """Return how many bytes a stream has at most when it is expanded."""
    if not form.codec:
        return len(data)
    total = at = 0
    while at < len(data):
        head = int.from_bytes(data[at : at + _CHUNK_HEAD], "little")
        total += head >> 1 if head & 1 else form.block
        at += _CHUNK_HEAD + (head >> 1)
    return total
