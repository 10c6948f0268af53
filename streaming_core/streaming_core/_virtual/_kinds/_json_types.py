"""Types of what JSON holds: how two of them become one, and how users name them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from streaming_core._virtual._kinds._records import arrow
from streaming_core.errors import SchemaError

__all__ = [
    "AS_TEXT",
    "ConflictError",
    "depth_of",
    "joined",
    "mended",
    "plain",
    "schema_of",
    "stand_in",
]

AS_TEXT: Final = "read the column as text with the option as_text=[...]"
_MOST_NESTED: Final = 48


class ConflictError(ValueError):
    """Values of one column that have no type in common."""


def plain(fields: Iterable[Any]) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return a schema of inferred fields in which texts are texts, even if all look like times."""
    library = arrow()
    return library.schema([field.with_type(_plain(field.type)) for field in fields])


def _plain(kind: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    library = arrow()
    if library.types.is_timestamp(kind):
        return library.string()
    if library.types.is_list(kind):
        return library.list_(_plain(kind.value_type))
    if library.types.is_struct(kind):
        return library.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema that rows of both fit; those of one keep their order and come first.

    Raises `ConflictError` where a column cannot be both; names it.
    """
    if one.equals(other):
        return one
    return arrow().schema(_fields(one, other, ""))


def _fields(one: Any, other: Any, path: str) -> list[Any]:  # noqa: ANN401 - of an optional dependency
    library = arrow()
    found = {field.name: field.type for field in one}
    for field in other:
        here = f"{path}.{field.name}" if path else field.name
        before = found.get(field.name)
        found[field.name] = field.type if before is None else _type(before, field.type, here)
    return [library.field(name, kind) for name, kind in found.items()]


def _type(one: Any, other: Any, path: str) -> Any:  # noqa: ANN401 - of an optional dependency
    library = arrow()
    types = library.types
    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if {str(one), str(other)} == {"int64", "double"}:
        return library.float64()
    if types.is_list(one) and types.is_list(other):
        return library.list_(_type(one.value_type, other.value_type, f"{path}[]"))
    if types.is_struct(one) and types.is_struct(other):
        return library.struct(_fields(one, other, path))
    msg = f"column {path!r} is {_told(other)} here, and {_told(one)} before; {AS_TEXT}"
    raise ConflictError(msg)


def _told(kind: Any) -> str:  # noqa: ANN401 - of an optional dependency
    types = arrow().types
    if types.is_list(kind):
        return "an array"
    if types.is_struct(kind):
        return "an object"
    return {"int64": "a number", "double": "a number", "bool": "true or false"}.get(
        str(kind), "a string"
    )


def stand_in(kind: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the type to parse values as, of which `mended` makes `kind`.

    Arrow's parser makes lists of nulls whose items are fewer than they say, which are not to be
    touched; no other type has that fault.
    """
    library = arrow()
    types = library.types
    if types.is_list(kind):
        item = kind.value_type
        return library.list_(library.bool_() if types.is_null(item) else stand_in(item))
    if types.is_struct(kind):
        return library.struct([field.with_type(stand_in(field.type)) for field in kind])
    return kind


def mended(array: Any, kind: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return an array that was parsed as the `stand_in` of `kind`; `ValueError` if it is none."""
    library = arrow()
    if array.type.equals(kind):
        return array
    if library.types.is_null(kind):
        if array.null_count < len(array):
            msg = "an item is true or false, where all were null"
            raise ValueError(msg)
        return library.nulls(len(array))
    if library.types.is_struct(kind):
        buffers = array.buffers()[:1]
        children = [mended(array.field(at), field.type) for at, field in enumerate(kind)]
    else:
        buffers, children = array.buffers()[:2], [mended(array.values, kind.value_type)]
    return library.Array.from_buffers(kind, len(array), buffers, children=children)


def depth_of(schema: Any) -> int:  # noqa: ANN401 - of an optional dependency
    """Return how deep the types of a schema are nested."""
    return max((_depth(field.type) for field in schema), default=0)


def _depth(kind: Any) -> int:  # noqa: ANN401 - of an optional dependency
    inner = [_depth(kind.field(at).type) for at in range(kind.num_fields)]
    return 1 + max(inner, default=0)


def schema_of(given: object) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the `pyarrow.Schema` that a user names: of each column a type.

    A type is a name that Arrow knows, a list with the type of its items, or of each field a type.

    Example:
        >>> print(schema_of({"x": "int32", "tags": ["string"], "at": {"lat": "double"}}).types)
        [DataType(int32), ListType(list<item: string>), StructType(struct<lat: double>)]
    """
    library = arrow()
    if not given or not isinstance(given, dict):
        msg = f"schema must give each column's type, such as {{'x': 'int64'}}; came {given!r}"
        raise SchemaError(msg)
    types: dict[Any, Any] = dict(given)  # pyright: ignore[reportUnknownArgumentType] - a user gave it
    return library.schema([(str(name), _named(kind, str(name), 0)) for name, kind in types.items()])


def _named(kind: Any, path: str, depth: int) -> Any:  # noqa: ANN401 - what a user gave
    library = arrow()
    if depth > _MOST_NESTED:
        msg = f"schema: {path!r} is nested deeper than {_MOST_NESTED}"
        raise SchemaError(msg)
    if isinstance(kind, Mapping) and kind:
        fields: dict[str, Any] = {str(name): each for name, each in kind.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return library.struct(
            [
                library.field(name, _named(each, f"{path}.{name}", depth + 1))
                for name, each in fields.items()
            ]
        )
    if isinstance(kind, Sequence) and not isinstance(kind, str) and len(kind) == 1:  # pyright: ignore[reportUnknownArgumentType]
        return library.list_(_named(kind[0], f"{path}[]", depth + 1))
    try:
        return library.type_for_alias(kind if isinstance(kind, str) else "")
    except ValueError as error:
        msg = (
            f"schema: {path!r} has the type {kind!r}; give a name such as 'int64', 'float', "
            "'string', 'bool' or 'timestamp[s]', a list with one type in it, or types by name"
        )
        raise SchemaError(msg) from error
