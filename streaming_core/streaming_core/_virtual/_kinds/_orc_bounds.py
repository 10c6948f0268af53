"""What the metadata of an ORC file says of the values in a stripe. Pure: from bytes.

A bound that cannot be trusted is left out: doubles among which there may be NaN (which hides others
from those who write statistics), days of the old calendar, times of a zone, and what some versions
of writers got wrong.
"""

from __future__ import annotations

import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._extras import require
from streaming_core._virtual._kinds._orc_bytes import every, fields, numbers
from streaming_core._virtual._kinds._orc_tail import expanded
from streaming_core._virtual._model import Bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._virtual._kinds._orc_tail import Form

__all__ = ["Said", "kinds_of", "stripe_bounds", "stripe_statistics"]

_BOOLEAN, _STRING, _DECIMAL, _DATE = 0, 7, 14, 15
_WHOLE: Final = frozenset({1, 2, 3, 4})
_FLOATS: Final = frozenset({5, 6})
_TIMES: Final = frozenset({9, 18})
_TEXTS_MERGED: Final = 1
"""The first version of writers that joins the bounds of texts rightly."""
_DECIMALS_RIGHT: Final = 7
_CPP: Final = 1
"""The number of a writer that had them right before."""
_NEW_CALENDAR: Final = -141_427
"""The first day of it; those before may be counted in two ways."""
_MOST_MILLIS: Final = ((1 << 63) - 1) // 1_000_000 - 1
_UTC: Final = frozenset({b"UTC", b"GMT", b"Etc/UTC", b"Etc/GMT"})

Ends = tuple[Any, Any]
"""The least and the most; None for what is not known."""


class Said(NamedTuple):
    """What is known of one stripe."""

    rows: int
    columns: Sequence[bytes]
    """The statistics of each type."""
    footer: bytes
    """The stripe's own."""


def stripe_statistics(section: bytes, form: Form) -> list[list[bytes]]:
    """Return for each stripe the statistics of all types; `ValueError` if they are broken."""
    found: list[list[bytes]] = []
    for number, _, content, _ in fields(expanded(section, form.codec, form.block)):
        if number == 1:
            found.append([inner for at, _, inner, _ in fields(content) if at == 1])
            if len(found[-1]) != form.types:
                msg = f"statistics of {len(found[-1])} types where there are {form.types}"
                raise ValueError(msg)
    return found


def kinds_of(form: Form) -> list[int]:
    """Return the kind of each type; `ValueError` if the footer is broken."""
    each = (content for number, _, content, _ in fields(form.footer) if number == 4)  # noqa: PLR2004 - a type
    return [numbers(content).get(1, 0) for content in each]


def stripe_bounds(
    stripes: Sequence[Said],
    form: Form,
    at: int,
    orc: int,
    kind: Any,  # noqa: ANN401 - an Arrow type
) -> Bounds:
    """Return what is known of the type `at`, of a kind of ORC's, read as an Arrow type, in stripes.

    Its rows have one value each, or none. Raises `ValueError` if the statistics are broken.
    """
    least: list[Any] = []
    most: list[Any] = []
    has_null = has_value = False
    for stripe in stripes:
        said = numbers(stripe.columns[at])
        values = said.get(1)
        has_null |= values != stripe.rows or bool(said.get(10))
        if values == 0 and said.get(10):
            continue
        has_value = True
        low, high = _ends(stripe, form, at, orc)
        least.append(low)
        most.append(high)
    if not least:
        return Bounds(None, None, has_null, has_value)
    low = None if None in least else _scalar(min(least), kind)
    high = None if None in most else _scalar(max(most), kind)
    return Bounds(low, high, has_null, has_value)


# --- one column of one stripe ---------------------------------------------------------------------


def _ends(stripe: Said, form: Form, at: int, orc: int) -> Ends:
    nothing = (None, None)
    inner = {number: content for number, _, content, _ in fields(stripe.columns[at]) if content}
    if orc in _WHOLE:
        return _signed(inner.get(2, b""))
    if orc in _FLOATS:
        return _doubles(inner.get(3, b""))
    if orc == _STRING:
        return _texts(inner.get(4, b"")) if form.writer >= _TEXTS_MERGED else nothing
    if orc == _BOOLEAN:
        return _truths(inner.get(5, b""), numbers(stripe.columns[at]).get(1))
    if orc == _DECIMAL:
        is_right = form.writer >= _DECIMALS_RIGHT or numbers(form.footer).get(9) == _CPP
        return _decimals(inner.get(6, b"")) if is_right else nothing
    if orc == _DATE:
        least, most = _signed(inner.get(7, b""))
        return (least, most) if least is not None and least >= _NEW_CALENDAR else nothing
    if orc in _TIMES:
        zones = {content for number, _, content, _ in fields(stripe.footer) if number == 3}  # noqa: PLR2004 - the zone
        return _moments(inner.get(9, b"")) if zones and zones <= _UTC else nothing
    return nothing


def _zigzag(value: int | None) -> int | None:
    return None if value is None else (value >> 1) ^ -(value & 1)


def _ordered(least: Any, most: Any) -> Ends:  # noqa: ANN401 - of any type
    """Return two ends, nothing if they contradict each other."""
    if least is not None and most is not None and least > most:
        return None, None
    return least, most


def _signed(data: bytes) -> Ends:
    said = numbers(data)
    return _ordered(_zigzag(said.get(1)), _zigzag(said.get(2)))


def _doubles(data: bytes) -> Ends:
    """Return the ends where the sum says that there is no NaN."""
    said = {
        number: struct.unpack("<d", content)[0]
        for number, _, content, _ in fields(data)
        if len(content) == 8  # noqa: PLR2004 - of a double
    }
    if any(said.get(at) is None or said[at] != said[at] for at in (1, 2, 3)):
        return None, None
    return _ordered(said[1], said[2])


def _texts(data: bytes) -> Ends:
    """Return the ends, or what long ones were cut to, which lies beyond them."""
    said = {number: content for number, _, content, _ in fields(data)}
    return _ordered(said.get(1, said.get(4)), said.get(2, said.get(5)))


def _truths(data: bytes, values: int | None) -> Ends:
    counts: list[int] = []
    for number, value, content, _ in fields(data):
        if number == 1:
            counts += every(value, content)
    if len(counts) != 1 or values is None or counts[0] > values:
        return None, None
    return counts[0] == values, counts[0] > 0


def _decimals(data: bytes) -> Ends:
    said = {number: content for number, _, content, _ in fields(data)}
    try:
        ends = [Decimal(said[at].decode()) if at in said else None for at in (1, 2)]
    except (InvalidOperation, UnicodeDecodeError):
        return None, None
    if not all(one is None or one.is_finite() for one in ends):
        return None, None
    return _ordered(*ends)


def _moments(data: bytes) -> Ends:
    """Return the ends in nanoseconds, a millisecond too far, as whole ones are noted."""
    said = numbers(data)
    least, most = _zigzag(said.get(3)), _zigzag(said.get(4))
    if least is None or most is None or max(-least, most) >= _MOST_MILLIS:
        return None, None
    return _ordered((least - 1) * 1_000_000, (most + 1) * 1_000_000)


def _scalar(value: Any, kind: Any) -> Any:  # noqa: ANN401 - of any type, and Arrow's
    """Return a bound as an Arrow scalar; None if the type has no such value."""
    arrow = require("pyarrow", extra="parquet", purpose="ORC")
    types = arrow.types
    try:
        if types.is_date32(kind):
            return arrow.scalar(value, arrow.int32()).cast(kind)
        if types.is_timestamp(kind):
            return arrow.scalar(value, arrow.int64()).cast(kind) if kind.unit == "ns" else None
        if types.is_string(kind):
            return arrow.scalar(value.decode(), kind)
        if not (types.is_primitive(kind) or types.is_decimal(kind)):
            return None
        found = arrow.scalar(value, kind)
    except (arrow.ArrowException, ArithmeticError, ValueError, TypeError):
        return None
    return found if found.as_py() == value else None
