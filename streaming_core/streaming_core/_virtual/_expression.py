"""What a `pyarrow.compute` expression says, as a tree: the library itself does not show it.

An expression travels as a record batch: its literals are columns, its shape is the schema's
metadata, a list of pairs in order. Only the C interface gives that list whole, because its keys
repeat.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from streaming_core._extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Call",
    "Field",
    "Literal",
    "Node",
    "evaluated",
    "is_understood",
    "packed_expression",
    "tree_of",
]

_METADATA_AT: Final = 2
"""The third pointer of the C interface's schema."""
_CAPSULE: Final = b"arrow_schema"
_DEEPEST: Final = 500
_SAMPLE: Final = 2


class Field(NamedTuple):
    """A column, or a field within one."""

    path: tuple[str, ...]


class Literal(NamedTuple):
    """A value."""

    scalar: Any
    """A `pyarrow.Scalar`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of other nodes."""

    name: str
    """As Arrow calls it, such as `greater` or `and_kleene`."""
    arguments: tuple[Node, ...]
    options: Any = None
    """A `pyarrow.StructScalar`, if the function takes any."""


Node: TypeAlias = Field | Literal | Call


def packed_expression(expression: Any) -> bytes:  # noqa: ANN401 - of an optional dependency
    """Return an expression as bytes, the same in every process; `ValueError` if it has none."""
    arrow = require("pyarrow", extra="parquet", purpose="filters")
    try:
        _, (data, *_) = expression.__reduce__()
        return bytes(memoryview(data))
    except (arrow.ArrowException, NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from error


def evaluated(expression: Any, table: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return what an expression is for each row of a table or record batch, as an array.

    Raises `ArrowException` if it cannot be computed.
    """
    arrow = require("pyarrow", extra="parquet", purpose="filters")
    acero = require("pyarrow.acero", extra="parquet", purpose="filters")
    if isinstance(table, arrow.RecordBatch):
        table = arrow.Table.from_batches([table])
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], ["found"])),
        ]
    )
    found = plan.to_table(use_threads=False).column(0).combine_chunks()
    if isinstance(found, arrow.ChunkedArray):
        found = (
            arrow.concat_arrays(found.chunks) if found.num_chunks else arrow.nulls(0, found.type)
        )
    return found


def tree_of(packed: bytes) -> Node:
    """Return the tree of a packed expression; `ValueError` if it is not understood whole."""
    arrow = require("pyarrow", extra="parquet", purpose="filters")
    try:
        file = arrow.ipc.open_file(arrow.BufferReader(packed))
        values = file.get_batch(0) if file.num_record_batches else None
        pairs = iter(_pairs(file.schema))
        root = _node(pairs, values, _DEEPEST)
    except (arrow.ArrowException, OSError, IndexError, struct.error, UnicodeDecodeError) as error:
        msg = f"the expression's bytes are not understood: {error}"
        raise ValueError(msg) from error
    if next(pairs, None) is not None:
        msg = "more than one expression"
        raise ValueError(msg)
    return root


@cache
def is_understood() -> bool:
    """Tell whether this version of Arrow keeps expressions as they are read here."""
    compute = require("pyarrow.compute", extra="parquet", purpose="filters")
    sample = (compute.field("a") > 1) & ~(
        compute.field("b", "c").isin(["x"]) | (compute.field("d") >= _SAMPLE)
    )
    try:
        root = tree_of(packed_expression(sample))
    except ValueError:
        return False
    return _shape(root) == (
        "and_kleene(greater(a,1),invert(or_kleene(is_in(b.c;value_set,null_matching_behavior),"
        "greater_equal(d,2))))"
    )


def _shape(node: Node) -> str:
    match node:
        case Field(path):
            return ".".join(path)
        case Literal(scalar):
            return str(scalar.as_py())
        case Call(name, arguments, options):
            names = [] if options is None else [k for k in options if not k.startswith("_")]
            return f"{name}({','.join(map(_shape, arguments))}{';' * bool(names)}{','.join(names)})"


def _node(pairs: Iterator[tuple[str, str]], values: Any, deepest: int) -> Node:  # noqa: ANN401 - a batch
    key, value = next(pairs, ("end", ""))
    return _of_pair(key, value, pairs, values, deepest)


def _of_pair(
    key: str,
    value: str,
    pairs: Iterator[tuple[str, str]],
    values: Any,  # noqa: ANN401 - see above
    deepest: int,
) -> Node:
    if not deepest:
        msg = "the expression is nested too deeply"
        raise ValueError(msg)
    if key == "literal":
        return Literal(values.column(int(value))[0])
    if key == "field_ref":
        return Field((value,))
    if key == "nested_field_ref":
        steps = [next(pairs, ("end", "")) for _ in range(int(value))]
        if not steps or any(step != "field_ref" for step, _ in steps):
            msg = "a field within a column that is not named"
            raise ValueError(msg)
        return Field(tuple(name for _, name in steps))
    if key != "call":
        msg = f"an expression that begins with {key!r}"
        raise ValueError(msg)
    arguments: list[Node] = []
    options = None
    for inner, text in pairs:
        if inner == "end":
            if text != value:
                break
            return Call(value, tuple(arguments), options)
        if inner == "options":
            options = values.column(int(text))[0]
        else:
            arguments.append(_of_pair(inner, text, pairs, values, deepest - 1))
    msg = f"the call of {value!r} does not end"
    raise ValueError(msg)


def _pairs(schema: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - a schema
    """Return a schema's metadata, in order, with keys that repeat."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, _CAPSULE)
    metadata = (ctypes.c_void_p * (_METADATA_AT + 1)).from_address(address)[_METADATA_AT]
    if not metadata:
        return []
    at = metadata

    def number() -> int:
        nonlocal at
        found: int = struct.unpack("=i", ctypes.string_at(at, 4))[0]
        at += 4
        return found

    def text() -> str:
        nonlocal at
        size = number()
        found = ctypes.string_at(at, size)
        at += size
        return found.decode()

    count = number()
    found = [(text(), text()) for _ in range(count)]
    del capsule  # holds what was read
    return found
