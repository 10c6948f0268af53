"""First defaults of fields in structs: the values that files from before such a field have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._virtual._tables._values import from_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DEFAULT", "fill_defaults", "has_defaults"]

DEFAULT: Final = b"streaming:default"
"""Where a field in a struct has its first default, as `to_text` gives it."""


def has_defaults(kind: Any) -> bool:  # noqa: ANN401 - a type of an optional dependency
    """Return whether a field at any depth of a type has a default."""
    return any(DEFAULT in (field.metadata or {}) or has_defaults(field.type) for field in _in(kind))


def _in(kind: Any) -> Iterable[Any]:  # noqa: ANN401 - see above
    return (kind.field(at) for at in range(kind.num_fields))


def fill_defaults(array: Any, kind: Any, where: str) -> Any:  # noqa: ANN401 - see above
    """Return an array with the fields that its structs lack and `kind` has defaults for.

    Names are those of `kind`. Raises `SourceFormatError` if a default is not of its field's type.

    Example:
        >>> import pyarrow as pa
        >>> b = pa.field("b", pa.int64(), metadata={DEFAULT: "7"})
        >>> kind = pa.struct([pa.field("a", pa.int64()), b])
        >>> fill_defaults(pa.array([{"a": 1}, None]), kind, "here").to_pylist()
        [{'a': 1, 'b': 7}, None]
    """
    arrow = require("pyarrow", extra="parquet", purpose="reading a table")
    types = arrow.types
    if not has_defaults(kind):
        return array
    if types.is_struct(kind) and types.is_struct(array.type):
        parts = {field.name: array.field(at) for at, field in enumerate(array.type)}
        for field in kind:
            metadata: dict[bytes, bytes] = field.metadata or {}
            default = metadata.get(DEFAULT)
            if field.name in parts:
                parts[field.name] = fill_defaults(parts[field.name], field.type, where)
            elif default is not None:
                value = from_text(default.decode(), field.type, where)
                parts[field.name] = arrow.repeat(value, len(array))
        return arrow.StructArray.from_arrays(
            list(parts.values()), names=list(parts), mask=array.is_null()
        )
    if types.is_map(kind) and types.is_map(array.type):
        keys = fill_defaults(array.keys, kind.key_type, where)
        items = fill_defaults(array.items, kind.item_type, where)
        return arrow.MapArray.from_arrays(_own(array.offsets), keys, items, mask=array.is_null())
    if types.is_list(array.type) or types.is_large_list(array.type):
        make = arrow.ListArray if types.is_list(array.type) else arrow.LargeListArray
        values = fill_defaults(array.values, kind.value_type, where)
        return make.from_arrays(_own(array.offsets), values, mask=array.is_null())
    return array  # the cast to `kind` says what is wrong


def _own(offsets: Any) -> Any:  # noqa: ANN401 - see above
    """Return offsets that are not part of another array."""
    return require("pyarrow", extra="parquet", purpose="reading a table").array(
        offsets.to_numpy(), offsets.type
    )
