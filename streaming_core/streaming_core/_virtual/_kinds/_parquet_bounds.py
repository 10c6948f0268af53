"""What a Parquet footer says of the values in a row group. Pure.

A bound that cannot be trusted is left out: of values that are not ordered as Arrow orders them, of
another unit than the column has, NaN, and texts that were cut within a character.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._virtual._kinds._parquet_statistics import are_sound
from streaming_core._virtual._model import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["group_bounds", "plain_leaves"]

_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_DIGITS: Final = Context(prec=100)


def plain_leaves(schema: Any) -> Mapping[str, int]:  # noqa: ANN401 - a `ParquetSchema`
    """Return where the columns stand whose rows have one value each, or none."""
    found: dict[str, int] = {}
    for at in range(len(schema)):
        column = schema.column(at)
        if column.path == column.name and column.max_repetition_level == 0:
            found[column.name] = at
    return found


def group_bounds(
    footer: bytes,
    metadata: Any,  # noqa: ANN401 - a `FileMetaData`
    groups: Sequence[int],
    at: int,
    kind: Any,  # noqa: ANN401 - an Arrow type
) -> Bounds:
    """Return what is known of the column `at`, of the Arrow type `kind`, in some row groups.

    `metadata` is what `footer` was parsed to.
    """
    column = metadata.schema.column(at)
    least: list[Any] = []
    most: list[Any] = []
    has_null, has_value, is_known = False, False, True
    for number in groups:
        group = metadata.row_group(number)
        chunk = group.column(at)
        statistics = chunk.statistics if are_sound(footer, chunk, column) else None
        nulls = _null_count(statistics)
        has_null |= nulls is None or nulls > 0
        if nulls is not None and nulls >= group.num_rows:
            continue
        has_value = True
        if statistics is None or not statistics.has_min_max:
            is_known = False
            continue
        ends = [_ordered(raw, statistics, kind) for raw in (statistics.min_raw, statistics.max_raw)]
        if None in ends or ends[0] > ends[1]:
            is_known = False
            continue
        least.append(ends[0])
        most.append(ends[1])
    if not is_known or not least:
        return Bounds(None, None, has_null, has_value)
    low, high = _scalar(min(least), kind), _scalar(max(most), kind)
    return Bounds(low, high, has_null, has_value)


def _null_count(statistics: Any) -> int | None:  # noqa: ANN401 - of an optional dependency
    if statistics is None or not statistics.has_null_count:
        return None
    return int(statistics.null_count)


def _ordered(raw: Any, statistics: Any, kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return a bound as a value that is ordered as the column's are; None if it is of no use."""
    types = require("pyarrow.types", extra="parquet", purpose="Parquet")
    if types.is_boolean(kind) or types.is_date32(kind):
        return raw if isinstance(raw, int) else None
    if types.is_signed_integer(kind):
        return raw if isinstance(raw, int) else None
    if types.is_unsigned_integer(kind):
        return raw % (1 << max(32, kind.bit_width)) if isinstance(raw, int) else None
    if types.is_float32(kind) or types.is_float64(kind):
        return raw if isinstance(raw, float) and raw == raw else None  # noqa: PLR0124 - no NaN
    if types.is_timestamp(kind):
        return raw if isinstance(raw, int) and _unit(statistics) == kind.unit else None
    if types.is_decimal(kind):
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if types.is_string(kind) or types.is_large_string(kind):
        return raw if isinstance(raw, bytes) else None
    if types.is_binary(kind) or types.is_large_binary(kind):
        return raw if isinstance(raw, bytes) else None
    return None


def _unit(statistics: Any) -> str | None:  # noqa: ANN401 - see above
    try:
        told: dict[str, object] = json.loads(statistics.logical_type.to_json())
    except ValueError:
        return None
    return _UNITS.get(str(told.get("timeUnit")))


def _scalar(value: Any, kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return a bound as an Arrow scalar; None if the type has no such value."""
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    types = arrow.types
    try:
        if types.is_decimal(kind):
            return arrow.scalar(Decimal(value).scaleb(-kind.scale, _DIGITS), kind)
        if types.is_boolean(kind):
            return arrow.scalar(bool(value), kind)
        if types.is_date32(kind):
            return arrow.scalar(value, arrow.int32()).cast(kind)
        if types.is_timestamp(kind):
            return arrow.scalar(value, arrow.int64()).cast(kind)
        if types.is_string(kind) or types.is_large_string(kind):
            return arrow.scalar(value.decode(), kind)
        return arrow.scalar(value, kind)
    except (arrow.ArrowException, ArithmeticError, ValueError, TypeError):
        return None
