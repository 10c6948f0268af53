"""Which column of a file is which column of its table: by field id, by mapped name, or by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._tables._defaults import fill_defaults
from streaming_core._virtual._tables._values import from_text
from streaming_core.errors import IndexInvalidError, Problem, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["FIELD_ID", "FILE_NAME", "Layout", "plain_schema", "rebuilt"]

FIELD_ID: Final = b"PARQUET:field_id"
"""Where a field of a table, and one of a Parquet file, has its id."""
FILE_NAME: Final = b"streaming:file_name"
"""Where a field of a table has its name in files, if that is another; empty: it is in none."""
_FILE_IDS: Final = (FIELD_ID, b"iceberg.id")
_MOST_DIGITS: Final = 12


class _Source(NamedTuple):
    """Where a column of the table is in a file."""

    name: str
    """The column of the file."""
    kind: Any
    """Its type there."""
    renamed: Any
    """The same type with the names that the table has; what it no longer has gets odd ones."""


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """How to read a table's columns from one file of it. Pure; threads may share it."""

    _schema: Any
    _sources: Mapping[str, _Source]
    _constants: Mapping[str, str | None]
    _where: str

    @classmethod
    def of(
        cls,
        schema: Any,  # noqa: ANN401 - of an optional dependency
        file_schema: Any,  # noqa: ANN401 - see above
        names: str,
        constants: Iterable[tuple[str, str | None]],
        where: str,
    ) -> Layout:
        """Return how the columns of `schema` are read from a file with `file_schema`.

        `names` maps the names of files without ids; `constants` are values for columns that the
        file lacks. What it lacks beyond that is null.

        Raises:
            SchemaError: A required column is in neither, or nothing says which column is which.
        """
        given = dict(constants)
        fields, by_id = _with_ids(schema, file_schema, names, where)
        sources: dict[str, _Source] = {}
        for field, source in zip(schema, _matched(schema, fields, by_id=by_id), strict=True):
            if source is not None:
                renamed = _plain(_renamed(field.type, source.type, by_id=by_id))
                sources[field.name] = _Source(source.name, source.type, renamed)
            elif not field.nullable and given.get(field.name) is None:
                msg = (
                    f"{where}: column {field.name!r} of the table is required, but the file has "
                    f"none such; its columns: {', '.join(map(repr, file_schema.names))}"
                )
                raise SchemaError(msg)
        return cls(schema, sources, given, where)

    def sources(self, columns: Sequence[str] | None = None) -> list[str]:
        """Return the columns of the file that hold `columns` of the table, all by default.

        In the table's order; fewer where the file lacks some.
        """
        wanted = self._schema.names if columns is None else columns
        return [self._sources[name].name for name in wanted if name in self._sources]

    def source(self, name: str) -> str | None:
        """Return the column of the file that holds a column of the table; None if it lacks it."""
        found = self._sources.get(name)
        return None if found is None else found.name

    def constant(self, name: str) -> Any:  # noqa: ANN401 - see above
        """Return the value, which may be null, that a column that the file lacks has in all rows.

        Raises `SourceFormatError` if the table gives one that is none of its type.
        """
        kind = self._schema.field(name).type
        return from_text(self._constants.get(name), kind, self._where)

    def table(self, table: Any, columns: Sequence[str] | None, rows: int) -> Any:  # noqa: ANN401 - see above
        """Return `rows` rows in the table's names, order and types.

        `table` has the file's columns that `sources` named, or more; it is not looked at if those
        are none.

        Raises:
            SourceFormatError: It has others, or values that the table's types do not take.
        """
        arrow = _arrow()
        wanted = self._schema.names if columns is None else columns
        fields = [self._schema.field(name) for name in wanted]
        found = [self._column(table, field, rows) for field in fields]
        schema = arrow.schema([field.remove_metadata() for field in fields])
        if not fields:
            # A table of no columns has no other way to know its rows.
            return arrow.table({"": arrow.nulls(rows)}).select([])
        return arrow.Table.from_arrays(found, schema=schema)

    def _column(self, table: Any, field: Any, rows: int) -> Any:  # noqa: ANN401 - see above
        arrow = _arrow()
        source = self._sources.get(field.name)
        if source is None:
            value = self.constant(field.name)
            return arrow.repeat(value, rows) if value.is_valid else arrow.nulls(rows, field.type)
        at = table.schema.get_field_index(source.name)
        if at < 0 or not table.schema.field(at).type.equals(source.kind) or table.num_rows != rows:
            msg = (
                f"{self._where}: column {source.name!r} is not what it was when it was indexed: "
                f"expected {rows} rows of {source.kind}, got {_told_of(table, at)}"
            )
            raise SourceFormatError(msg)
        chunks = [_as_renamed(chunk, source) for chunk in table.column(at).chunks]
        chunks = [fill_defaults(chunk, field.type, self._where) for chunk in chunks]
        try:
            return arrow.chunked_array([_cast(chunk, field.type) for chunk in chunks], field.type)
        except arrow.ArrowException as error:
            msg = f"{self._where}: column {source.name!r} is no {field.type}: {error!s:.300}"
            raise SourceFormatError(msg) from error


def _told_of(table: Any, at: int) -> str:  # noqa: ANN401 - see above
    """Describe a column of a table, for messages."""
    return (
        f"{table.num_rows} rows of {table.schema.field(at).type}" if at >= 0 else "no such column"
    )


def plain_schema(schema: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return a schema without extension types, its fields' metadata kept."""
    arrow = _arrow()
    return arrow.schema([field.with_type(_plain(field.type)) for field in schema])


# --- finding --------------------------------------------------------------------------------------


class _Mapped(msgspec.Struct, frozen=True):
    """Names that a field has in files without ids, as Iceberg's name mapping has them."""

    names: list[str]
    id: int | None = msgspec.field(default=None, name="field-id")
    fields: list[_Mapped] | None = None


_MAPPINGS: Final = msgspec.json.Decoder(list[_Mapped])


def _with_ids(
    schema: Any,  # noqa: ANN401 - of an optional dependency
    file_schema: Any,  # noqa: ANN401 - see above
    names: str,
    where: str,
) -> tuple[list[Any], bool]:
    """Return a file's fields, ids added by the mapping if it has none, and whether those count."""
    fields = list(file_schema)
    if not _has_ids(schema):
        return fields, False
    if _has_ids(fields):
        return fields, True
    if names:
        try:
            mapped = _MAPPINGS.decode(names)
        except (msgspec.DecodeError, RecursionError) as error:
            problem = Problem("$", f"no mapping of names: {error!s:.300}", "value")
            raise IndexInvalidError(where, (problem,)) from error
        return [_mapped(field, mapped) for field in fields], True
    if any(FILE_NAME in (field.metadata or {}) for field in schema):
        return fields, False
    msg = (
        f"{where}: the file has no field ids, and the table does not map names to them, so nothing "
        "says which column is which; set the table's property 'schema.name-mapping.default'"
    )
    raise SchemaError(msg)


def _mapped(field: Any, known: Sequence[_Mapped]) -> Any:  # noqa: ANN401 - see above
    """Return a field, and those in it, with the ids that a mapping gives their names."""
    entry = next((one for one in known if field.name in one.names), None)
    if entry is None:
        return field.with_metadata(None)
    inner = entry.fields or []
    kind = rebuilt(
        field.type,
        lambda role, child: _mapped(child.with_name(role or child.name), inner).with_name(
            child.name
        ),
    )
    metadata = None if entry.id is None else {FIELD_ID: str(entry.id).encode()}
    return field.with_type(kind).with_metadata(metadata)


def _matched(fields: Iterable[Any], others: Iterable[Any], *, by_id: bool) -> list[Any]:
    """Return for each field of a table, or of a struct in it, that of a file; None if none is."""
    others = list(others)
    if by_id:
        known = {_id_of(one): one for one in others} | {None: None}
        return [known.get(_id_of(field)) for field in fields]
    named = {one.name: one for one in others} | {None: None}
    return [named.get(_file_name(field)) for field in fields]


def _renamed(kind: Any, other: Any, *, by_id: bool) -> Any:  # noqa: ANN401 - see above
    """Return the type `other` of a file with the names that `kind`, the table's, has.

    What the table no longer has gets names that no column has: a column that was dropped must not
    come back by its name.
    """
    types = _arrow().types
    if types.is_struct(kind) and types.is_struct(other):
        fields, others = list(kind), list(other)
        found = _matched(fields, others, by_id=by_id)
        children: list[Any] = []
        for at, child in enumerate(others):
            field = next((f for f, one in zip(fields, found, strict=True) if one is child), None)
            name = f"\0{at}" if field is None else field.name
            inner = child.type if field is None else _renamed(field.type, child.type, by_id=by_id)
            children.append(child.with_name(name).with_type(inner))
        return _arrow().struct(children)
    inside = dict(_children(kind))
    return rebuilt(
        other,
        lambda role, child: (
            child.with_type(_renamed(inside[role].type, child.type, by_id=by_id))
            if role in inside
            else child
        ),
    )


def _children(kind: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - see above
    """Return the fields in a list or map with the names that mappings have for them."""
    types = _arrow().types
    if types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [("element", kind.value_field)]
    return []


def rebuilt(kind: Any, change: Callable[[str, Any], Any]) -> Any:  # noqa: ANN401 - see above
    """Return a type whose inner fields are changed; those of structs have an empty role."""
    arrow = _arrow()
    types = arrow.types
    if types.is_struct(kind):
        return arrow.struct([change("", child) for child in kind])
    inner = [change(role, child) for role, child in _children(kind)]
    if types.is_map(kind):
        return arrow.map_(*inner, keys_sorted=kind.keys_sorted)
    if types.is_list(kind):
        return arrow.list_(*inner)
    if types.is_large_list(kind):
        return arrow.large_list(*inner)
    if types.is_fixed_size_list(kind):
        return arrow.list_(*inner, kind.list_size)
    return kind


def _plain(kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return a type without extension types, in it neither."""
    if isinstance(kind, _arrow().BaseExtensionType):
        return _plain(kind.storage_type)
    return rebuilt(kind, lambda _, child: child.with_type(_plain(child.type)))


def _has_ids(fields: Iterable[Any]) -> bool:
    return any(_id_of(field) is not None for field in fields)


def _id_of(field: Any) -> int | None:  # noqa: ANN401 - see above
    metadata: dict[bytes, bytes] = field.metadata or {}
    text = next((metadata[name] for name in _FILE_IDS if name in metadata), b"")
    return int(text) if text.isdigit() and len(text) < _MOST_DIGITS else None


def _file_name(field: Any) -> str | None:  # noqa: ANN401 - see above
    """Return the name of a table's field in files; None if it is in none."""
    metadata: dict[bytes, bytes] = field.metadata or {}
    told = metadata.get(FILE_NAME, str(field.name).encode())
    return told.decode() or None


# --- changing -------------------------------------------------------------------------------------


class _Told:
    """An array as another type of the same form, for Arrow to take over without a copy."""

    def __init__(self, array: Any, kind: Any) -> None:  # noqa: ANN401 - see above
        self._array = array
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _as_renamed(chunk: Any, source: _Source) -> Any:  # noqa: ANN401 - see above
    # Sound only because `chunk` is known to be of the type that `renamed` was made from.
    same = source.kind.equals(source.renamed)
    return chunk if same else _arrow().array(_Told(chunk, source.renamed))


def _cast(chunk: Any, kind: Any) -> Any:  # noqa: ANN401 - see above
    if _arrow().types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    return chunk if chunk.type.equals(kind) else chunk.cast(kind)


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="reading a table")
