"""Which types decoded columns have: few, and of several files' one that all fit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._extras import require
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["normal_type", "plain", "unified"]

_WHOLE_DIGITS: Final = 20
"""Of the largest whole number of 64 bits."""
_MOST_128: Final = 38
"""Digits of a decimal of 128 bits."""


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="data that is not MDS")


def unified(
    schemas: Sequence[Any],  # of an optional dependency
    wheres: Sequence[str],
    columns: Sequence[str] | None = None,
) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema that the columns of all files fit; those that a file lacks are null there.

    Types are normal ones. Only `columns` are looked at, all if None; of others the type may be any.

    Raises `SchemaError` where one has types with nothing in common, or a file has it twice; names
    the column and the files.
    """
    arrow = _arrow()
    wanted = None if columns is None else set(columns)
    known: dict[Any, Any] = {}
    found: dict[str, Any] = {}
    first: dict[str, tuple[str, Any]] = {}
    seen: dict[str, int] = {}
    for schema, where in zip(schemas, wheres, strict=True):
        here: set[str] = set()
        for field in schema:
            name = field.name
            if wanted is not None and name not in wanted:
                continue
            if name in here:
                raise _twice(name, where)
            here.add(name)
            kind = known.setdefault(field.type, field.type)
            if kind is field.type:
                if _is_unknown(field.type):
                    msg = (
                        f"{where}: column {name!r} is {field.type}, which pyarrow does not read; "
                        "name the columns that are wanted, without it"
                    )
                    raise SchemaError(msg)
                known[field.type] = kind = normal_type(field.type)
            seen[name] = seen.get(name, 0) + 1
            before = found.get(name)
            if before is None:
                found[name] = arrow.field(name, kind, nullable=field.nullable)
                first[name] = (where, field.type)
                continue
            if before.type.equals(kind) and before.nullable >= field.nullable:
                continue
            joined = _joined(before.type, kind)
            if joined is None:
                raise _apart(name, first[name], (where, field.type))
            found[name] = arrow.field(name, joined, nullable=before.nullable or field.nullable)
    fields = [
        field if seen[name] == len(schemas) else field.with_nullable(True)  # noqa: FBT003 - the value
        for name, field in found.items()
    ]
    return arrow.schema(fields)


def _is_unknown(kind: Any) -> bool:  # noqa: ANN401 - a type
    """Return whether pyarrow has no arrays of a type, or of one in it."""
    lib = require("pyarrow.lib", extra="parquet", purpose="data that is not MDS")
    unknown = {lib.Type_INTERVAL_MONTHS, lib.Type_INTERVAL_DAY_TIME}
    return kind.id in unknown or any(
        _is_unknown(kind.field(i).type) for i in range(kind.num_fields)
    )


def _twice(name: str, where: str) -> SchemaError:
    return SchemaError(
        f"{where}: several columns are called {name!r}; name the columns that are wanted without it"
    )


def _apart(name: str, one: tuple[str, Any], other: tuple[str, Any]) -> SchemaError:
    return SchemaError(
        f"{other[0]}: column {name!r} is {other[1]}, in {one[0]} it is {one[1]}, which no one type "
        "can hold. Read such files as streams of their own, or name the columns that are wanted, "
        "without it"
    )


def _joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - types
    """Return the type that values of two normal ones fit, None if there is none."""
    arrow = _arrow()
    if one.equals(other):
        return one
    try:
        schemas = [arrow.schema([arrow.field("", _in_utc(kind))]) for kind in (one, other)]
        if _zones(one) == _zones(other):
            schemas = [arrow.schema([arrow.field("", kind)]) for kind in (one, other)]
        found = arrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except arrow.ArrowException:
        return None
    if arrow.types.is_decimal(found) and (
        arrow.types.is_integer(one) or arrow.types.is_integer(other)
    ):
        # Arrow leaves no room for all whole numbers before the point.
        digits = max(found.precision, _WHOLE_DIGITS + found.scale)
        found = (
            arrow.decimal128(digits, found.scale)
            if digits <= _MOST_128
            else arrow.decimal256(digits, found.scale)
        )
    return found


def _zones(kind: Any) -> list[str]:  # noqa: ANN401 - a type
    """Return the zones of the times in a type, in order."""
    if _arrow().types.is_timestamp(kind):
        return [kind.tz] if kind.tz is not None else []
    return [zone for at in range(kind.num_fields) for zone in _zones(kind.field(at).type)]


def _in_utc(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return a type with all zones of its times made one: what they mean stays the same."""
    arrow = _arrow()
    if arrow.types.is_timestamp(kind):
        return kind if kind.tz is None else arrow.timestamp(kind.unit, "UTC")
    return _rebuilt(kind, _in_utc)


def normal_type(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type that stands for a family: long offsets, nothing encoded."""
    arrow = _arrow()
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        return normal_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return normal_type(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return arrow.large_string()
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return arrow.large_binary()
    return _rebuilt(kind, normal_type)


def _rebuilt(kind: Any, inner: Any) -> Any:  # noqa: ANN401 - a type; a function of types
    """Return a nested type with `inner` of what it holds, any other as it is."""
    arrow = _arrow()
    types = arrow.types
    if types.is_fixed_size_list(kind):
        return arrow.list_(inner(kind.value_type), kind.list_size)
    if (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    ):
        return arrow.large_list(inner(kind.value_type))
    if types.is_struct(kind):
        return arrow.struct([arrow.field(f.name, inner(f.type)) for f in kind])
    if types.is_map(kind):
        return arrow.map_(inner(kind.key_type), inner(kind.item_type))
    return kind


def plain(column: Any) -> Any:  # noqa: ANN401 - an array
    """Return an array without extensions and encodings, at any depth, which a cast cannot undo."""
    arrow = _arrow()
    types = arrow.types
    kind = column.type
    if isinstance(kind, arrow.BaseExtensionType):
        return plain(column.storage)
    if types.is_dictionary(kind):
        # Values are brought into their form first: views cannot be taken from.
        values = plain(column.dictionary)
        return values.cast(normal_type(values.type)).take(column.indices)
    if types.is_run_end_encoded(kind):
        compute = require("pyarrow.compute", extra="parquet", purpose="data that is not MDS")
        return plain(compute.run_end_decode(column))
    if types.is_nested(kind) and _is_encoded(kind):
        return _plain_nested(column)
    return column


def _is_encoded(kind: Any) -> bool:  # noqa: ANN401 - a type
    """Tell whether there is something to be undone in a type."""
    arrow = _arrow()
    types = arrow.types
    return (
        isinstance(kind, arrow.BaseExtensionType)
        or types.is_dictionary(kind)
        or types.is_run_end_encoded(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
        or any(_is_encoded(kind.field(at).type) for at in range(kind.num_fields))
    )


def _plain_nested(column: Any) -> Any:  # noqa: ANN401 - an array
    arrow = _arrow()
    types = arrow.types
    kind = column.type
    absent = column.is_null()
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _in_order(column, absent)
    if types.is_struct(kind):
        parts = [plain(column.field(at)) for at in range(kind.num_fields)]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        return arrow.StructArray.from_arrays(parts, names=names, mask=absent)
    if types.is_fixed_size_list(kind):
        width = kind.list_size
        if not width:  # which Arrow would divide by
            empty = arrow.list_(normal_type(kind.value_type), 0)
            return arrow.array([None if one else [] for one in absent.to_pylist()], empty)
        values = column.values.slice(column.offset * width, len(column) * width)
        return arrow.FixedSizeListArray.from_arrays(plain(values), width, mask=absent)
    if types.is_map(kind):
        keys, items = plain(column.keys), plain(column.items)
        return arrow.MapArray.from_arrays(_whole(column.offsets), keys, items, mask=absent)
    make = arrow.LargeListArray if types.is_large_list(kind) else arrow.ListArray
    return make.from_arrays(_whole(column.offsets), plain(column.values), mask=absent)


def _in_order(column: Any, absent: Any) -> Any:  # noqa: ANN401 - arrays
    """Return lists that lie anywhere as lists one after the other: a cast mixes them up."""
    arrow = _arrow()
    lacks: NDArray[np.bool_] = absent.to_numpy(zero_copy_only=False)
    sizes: NDArray[np.int64] = np.where(lacks, 0, column.sizes.to_numpy())
    begins: NDArray[np.int64] = column.offsets.to_numpy()
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    shifts: NDArray[np.int64] = np.repeat(begins - ends[:-1], sizes)
    places: NDArray[np.int64] = np.arange(int(ends[-1])) + shifts
    values = plain(column.values)
    # In this form first: views cannot be taken from.
    values = values.cast(normal_type(values.type)).take(arrow.array(places))
    return arrow.LargeListArray.from_arrays(arrow.array(ends), values, mask=absent)


def _whole(numbers: Any) -> Any:  # noqa: ANN401 - an array
    """Return numbers as an array that is no part of another."""
    return _arrow().array(numbers.to_numpy(), numbers.type)
