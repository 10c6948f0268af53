"""From what files have to what samples have: one schema, few types, a rule for nulls. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from streaming_core._extras import require
from streaming_core.errors import SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Nulls", "check_nulls", "normal_schema", "normal_table", "unified"]

Nulls: TypeAlias = Literal["none", "error", "mask"] | dict[str, Any]
"""What becomes of missing values: they are None; are refused; are filled and marked in a column of
their own (`x.valid`); or are filled with a value for each column."""

VALID: Final = ".valid"


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="data that is not MDS")


def check_nulls(nulls: Any) -> Nulls:  # noqa: ANN401 - what a user gave
    """Return the rule for nulls; `SchemaError` lists those there are."""
    if isinstance(nulls, dict) or nulls in {"none", "error", "mask"}:
        return nulls  # type: ignore[no-any-return]
    msg = (
        f"nulls must be 'none', 'error', 'mask' or a value for each column, such as "
        f"{{'x': 0}}; came {nulls!r}"
    )
    raise SchemaError(msg)


def unified(schemas: Sequence[Any], wheres: Sequence[str]) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema that all files' columns fit; those that a file lacks are null there.

    Raises `SchemaError` where a column has types with nothing in common; names a file.
    """
    arrow = _arrow()
    joined = schemas[0]
    for schema, where in zip(schemas[1:], wheres[1:], strict=True):
        if schema.equals(joined):
            continue
        try:
            joined = arrow.unify_schemas([joined, schema], promote_options="permissive")
        except arrow.ArrowException as error:
            msg = (
                f"{where}: its columns do not fit those of {wheres[0]}: {error!s:.300}. Read the "
                "two as streams of their own, or choose columns that agree"
            )
            raise SchemaError(msg) from error
    return joined


def normal_schema(schema: Any, nulls: Nulls) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema of decoded tables: of each family of types one, `mask`'s columns added."""
    arrow = _arrow()
    fields: list[Any] = []
    for field in schema:
        fields.append(arrow.field(field.name, _normal_type(field.type)))
        if nulls == "mask" and field.nullable:
            fields.append(arrow.field(field.name + VALID, arrow.bool_()))
    return arrow.schema(fields)


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
    masks = {name for name in schema.names if name.endswith(VALID) and nulls == "mask"}
    for field in schema:
        if field.name in masks and field.name.removesuffix(VALID) in arrays:
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
        column = column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column
        if isinstance(column, arrow.ChunkedArray):  # that of no chunks
            column = (
                arrow.concat_arrays(column.chunks)
                if column.num_chunks
                else arrow.array([], column.type)
            )
        return _cast(column, field.type)
    if field.name in constants:
        value = constants[field.name]
        one = arrow.scalar(value, arrow.string()).cast(field.type)
        return arrow.repeat(one, table.num_rows)
    return arrow.nulls(table.num_rows, field.type)


def _cast(column: Any, kind: Any) -> Any:  # noqa: ANN401 - see above
    arrow = _arrow()
    if column.type.equals(kind):
        return column
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column, arrow.ExtensionArray):
        column = column.storage
    return column if column.type.equals(kind) else column.cast(kind)


def _filled(column: Any, field: Any, nulls: Nulls, where: str) -> Any:  # noqa: ANN401 - see above
    if not column.null_count or nulls == "none":
        return column
    if isinstance(nulls, dict):
        if field.name not in nulls:
            return column
        return column.fill_null(_arrow().scalar(nulls[field.name], field.type))
    if nulls == "mask":
        return column.fill_null(_zero(field.type))
    msg = (
        f"{where}: column {field.name!r} lacks {column.null_count} of {len(column)} values, and "
        "nulls='error' was given; give a value to fill in, or nulls='mask'"
    )
    raise SchemaError(msg)


def _zero(kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return what stands where nothing is."""
    arrow = _arrow()
    types = arrow.types
    if types.is_large_string(kind):
        return arrow.scalar("", kind)
    if types.is_large_binary(kind):
        return arrow.scalar(b"", kind)
    if types.is_boolean(kind):
        return arrow.scalar(False, kind)  # noqa: FBT003 - the value
    if types.is_list(kind) or types.is_large_list(kind):
        return arrow.scalar([], kind)
    if types.is_fixed_size_list(kind):
        return arrow.scalar([_zero(kind.value_type).as_py()] * kind.list_size, kind)
    if types.is_struct(kind):
        return arrow.scalar({field.name: _zero(field.type).as_py() for field in kind}, kind)
    if types.is_map(kind):
        return arrow.scalar([], kind)
    if types.is_decimal(kind):
        return arrow.scalar(Decimal(0), kind)
    return arrow.scalar(0, arrow.int64()).cast(kind)


def _normal_type(kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return the type that stands for a family: long offsets, nothing encoded."""
    arrow = _arrow()
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        return _normal_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _normal_type(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return arrow.large_string()
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return arrow.large_binary()
    if types.is_fixed_size_list(kind):
        return arrow.list_(_normal_type(kind.value_type), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return arrow.large_list(_normal_type(kind.value_type))
    if types.is_struct(kind):
        return arrow.struct([arrow.field(f.name, _normal_type(f.type)) for f in kind])
    return kind
