"""From what files have to what samples have: one schema, few types, a rule for nulls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, cast

from streaming_core._extras import require
from streaming_core._virtual._types import normal_type, plain
from streaming_core.errors import MissingColumnError, SchemaError, SourceFormatError

__all__ = ["Nulls", "check_nulls", "normal_schema", "normal_table"]

Nulls: TypeAlias = Literal["none", "error", "mask"] | dict[str, Any]
"""What becomes of missing values: they are None; are refused; are filled and marked in a column of
their own (`x.valid`); or are filled with a value for each column."""

VALID: Final = ".valid"
_HALF: Final = 32
"""Bits of times that are counted in few."""


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="data that is not MDS")


def check_nulls(nulls: Any) -> Nulls:  # noqa: ANN401 - what a user gave
    """Return the rule for nulls; `SchemaError` lists those there are."""
    if isinstance(nulls, Mapping):
        return dict(cast("Mapping[str, Any]", nulls))
    if isinstance(nulls, str) and nulls in {"none", "error", "mask"}:
        return nulls  # type: ignore[return-value] # pyright: ignore[reportReturnType] - just seen
    msg = (
        f"nulls must be 'none', 'error', 'mask' or a value for each column, such as "
        f"{{'x': 0}}; came {nulls!r}"
    )
    raise SchemaError(msg)


def normal_schema(schema: Any, nulls: Nulls, where: str = "the files") -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema of decoded tables: of each family of types one, `mask`'s columns added.

    Raises:
        MissingColumnError: A value is to be filled into a column that is not there.
        SchemaError: That value is none of the column's type, or a mask's column has the name of
            another.
    """
    arrow = _arrow()
    fields: list[Any] = []
    for field in schema:
        fields.append(arrow.field(field.name, normal_type(field.type)))
        if nulls == "mask" and field.nullable:
            if field.name + VALID in schema.names:
                msg = (
                    f"{where}: nulls='mask' says in {field.name + VALID!r} where {field.name!r} "
                    "has values, but there is a column of that name; choose columns without it, "
                    "or another rule for nulls"
                )
                raise SchemaError(msg)
            # No other field is without nulls, which tells it.
            fields.append(arrow.field(field.name + VALID, arrow.bool_(), nullable=False))
    found = arrow.schema(fields)
    if isinstance(nulls, dict):
        for name, value in nulls.items():
            _check_fill(found, name, value, where)
    return found


def _check_fill(schema: Any, name: object, value: object, where: str) -> None:  # noqa: ANN401 - see above
    if name not in schema.names:
        known = ", ".join(map(repr, schema.names))
        msg = f"nulls= fills {name!r}, but no such column is read of {where}; there are {known}"
        raise MissingColumnError(msg)
    if value is None:
        msg = (
            f"nulls= fills {name!r} with None, which it has already; give a value, or leave it out"
        )
        raise SchemaError(msg)
    _fill_of(schema.field(name), value, where)


def _fill_of(field: Any, value: object, where: str) -> Any:  # noqa: ANN401 - see above
    """Return the array of one value that is filled in; `SchemaError` if it does not fit."""
    arrow = _arrow()
    try:
        found = arrow.array([value], field.type)
        if found.null_count or (arrow.types.is_integer(field.type) and found[0].as_py() != value):
            msg = "no value of it is the same"
            raise ValueError(msg)  # noqa: TRY301 - one message for all
    except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        msg = (
            f"nulls= fills column {field.name!r} of {where}, which is {field.type}, with "
            f"{value!r:.100}: {error!s:.200}"
        )
        raise SchemaError(msg) from error
    return found


def normal_table(
    table: Any,  # noqa: ANN401 - of an optional dependency
    schema: Any,  # noqa: ANN401 - of an optional dependency
    nulls: Nulls,
    constants: Mapping[str, str | None],
    where: str,
) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return a table in `schema`, which `normal_schema` made, as one record batch.

    Columns that it lacks come from `constants`, else they are null.

    Raises:
        SourceFormatError: A value does not fit its type; says of which column.
        SchemaError: A value is missing where that is refused.
    """
    arrow = _arrow()
    arrays: dict[str, Any] = {}
    masks = {field.name for field in schema if not field.nullable}
    for field in schema:
        if field.name in masks:
            continue
        try:
            column = _column(table, field, constants)
        except arrow.ArrowException as error:
            msg = f"{where}: column {field.name!r} is no {field.type}: {error!s:.300}"
            raise SourceFormatError(msg) from error
        if field.name + VALID in masks:
            arrays[field.name + VALID] = column.is_valid()
        arrays[field.name] = _filled(column, field, nulls, where)
    return arrow.record_batch([arrays[name] for name in schema.names], schema=schema)


def _column(table: Any, field: Any, constants: Mapping[str, str | None]) -> Any:  # noqa: ANN401 - see above
    arrow = _arrow()
    at = table.schema.get_field_index(field.name)
    if at >= 0:
        column = table.column(at)
        chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
        # Each for itself: encoded ones have dictionaries of their own.
        each = [_cast(chunk, field.type) for chunk in chunks]
        if len(each) == 1:
            return each[0]
        return arrow.concat_arrays(each) if each else arrow.array([], field.type)
    if field.name in constants:
        value = constants[field.name]
        one = arrow.scalar(value, arrow.string()).cast(field.type)
        return arrow.repeat(one, table.num_rows)
    return arrow.nulls(table.num_rows, field.type)


def _cast(column: Any, kind: Any) -> Any:  # noqa: ANN401 - see above
    column = plain(column)
    return column if column.type.equals(kind) else column.cast(kind)


def _filled(column: Any, field: Any, nulls: Nulls, where: str) -> Any:  # noqa: ANN401 - see above
    if not column.null_count or nulls == "none":
        return column
    if isinstance(nulls, dict):
        if field.name not in nulls:
            return column
        return _with(column, _fill_of(field, nulls[field.name], where))
    if nulls == "mask":
        return _with(column, _zero(field.type))
    msg = (
        f"{where}: column {field.name!r} lacks {column.null_count} of {len(column)} values, and "
        "nulls='error' was given; give a value to fill in, or nulls='mask'"
    )
    raise SchemaError(msg)


def _with(column: Any, value: Any) -> Any:  # noqa: ANN401 - see above
    """Return a column with the only item of `value` where it has none."""
    arrow = _arrow()
    types = arrow.types
    kind = column.type
    if types.is_primitive(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return column.fill_null(value[0])
    compute = require("pyarrow.compute", extra="parquet", purpose="data that is not MDS")
    own = arrow.array(range(len(column)), arrow.int64())
    places = compute.if_else(column.is_valid(), own, arrow.scalar(len(column), arrow.int64()))
    return arrow.concat_arrays([column, value]).take(places)


def _zero(kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return an array of one item, which stands where nothing is; of type null it is null."""
    arrow = _arrow()
    types = arrow.types
    if types.is_null(kind):
        return arrow.nulls(1)
    if types.is_fixed_size_list(kind) and kind.list_size:  # by none Arrow would divide
        items = arrow.concat_arrays([_zero(kind.value_type)] * kind.list_size)
        return arrow.FixedSizeListArray.from_arrays(items, type=kind)
    if types.is_struct(kind):
        parts = [_zero(field.type) for field in kind]
        if not parts:
            return arrow.array([{}], kind)
        return arrow.StructArray.from_arrays(parts, fields=list(kind))
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        number = arrow.int32() if kind.bit_width == _HALF else arrow.int64()
        return arrow.array([0], number).view(kind)
    return arrow.array([_nothing(types, kind)], kind)


def _nothing(types: Any, kind: Any) -> object:  # noqa: ANN401 - see above
    """Return the value that stands for nothing in what is no number."""
    if types.is_large_string(kind):
        return ""
    if types.is_large_binary(kind):
        return b""
    if types.is_boolean(kind):
        return False
    if types.is_nested(kind):
        return list[object]()
    if types.is_decimal(kind):
        return Decimal(0)
    if types.is_interval(kind):
        return (0, 0, 0)
    return 0
