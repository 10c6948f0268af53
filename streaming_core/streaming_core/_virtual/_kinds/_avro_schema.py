"""Avro's schemas, and which Arrow type each becomes. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, cast

from streaming_core._extras import require

__all__ = ["Node", "arrow_field", "arrow_type", "parse_schema"]

_PRIMITIVE_BYTES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
"""The fewest bytes that a value of each takes."""
_LOGICAL: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}
"""Which logical types change what a value is, and of what they are written."""
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DEPTH_MOST: Final = 64
_NODES_MOST: Final = 20_000
_FIXED_MOST: Final = 1 << 24
_DIGITS_MOST: Final = 76


@dataclass(frozen=True, slots=True)
class Node:
    """One type of a schema, all names resolved."""

    kind: str
    """A primitive, `fixed`, `enum`, `array`, `map`, `record` or `nullable`."""
    least: int
    """The fewest bytes that a value takes."""
    logical: str = ""
    size: int = 0
    """Bytes of a fixed one."""
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""
    symbols: tuple[str, ...] = ()
    """Names of an enum's values."""
    fields: tuple[tuple[str, Node], ...] = ()
    """Of a record; one without a name of an array, a map or a nullable."""
    null_first: bool = True
    """Whether null is the first of a nullable's two branches."""
    weight: int = field(init=False)
    """How many types there are in it, those counted again that are used again."""
    height: int = field(init=False)
    """How deep they are nested."""

    def __post_init__(self) -> None:
        nodes = [node for _, node in self.fields]
        object.__setattr__(self, "weight", 1 + sum(node.weight for node in nodes))
        object.__setattr__(self, "height", 1 + max((node.height for node in nodes), default=0))

    @property
    def item(self) -> Node:
        """What an array, a map or a nullable has."""
        return self.fields[0][1]


def parse_schema(text: bytes) -> tuple[tuple[str, Node], ...]:
    """Return the columns of a schema: a record's fields, of anything else one, `value`.

    Raises `ValueError` if it is broken, or cannot become columns; says which part.
    """
    try:
        document = json.loads(text)
    except RecursionError as error:
        msg = "it is nested too deep"
        raise ValueError(msg) from error
    root = _Parser().node(document, "", "", 0)
    return root.fields if root.kind == "record" else (("value", root),)


@dataclass(slots=True)
class _Parser:
    """Named types may be used again below their definition."""

    named: dict[str, Node] = field(default_factory=dict[str, Node])
    open: list[str] = field(default_factory=list[str])
    count: int = 0

    def node(self, document: Any, space: str, path: str, deep: int) -> Node:  # noqa: ANN401 - JSON
        self._grow(1, deep, path)
        if isinstance(document, str):
            if document in _PRIMITIVE_BYTES:
                return Node(document, _PRIMITIVE_BYTES[document])
            return self._known(document, space, path, deep)
        if isinstance(document, list):
            return self._union(cast("list[object]", document), space, path, deep)
        if not isinstance(document, dict):
            msg = f"{path or 'it'}: a type is a text, a list or an object, not {document!r:.80}"
            raise ValueError(msg)  # noqa: TRY004 - wrong data, as all here
        return self._object(cast("dict[str, Any]", document), space, path, deep)

    def _object(self, document: dict[str, Any], space: str, path: str, deep: int) -> Node:
        kind = document.get("type")
        if not isinstance(kind, str):
            return self.node(kind, space, path, deep + 1)
        if kind in _PRIMITIVE_BYTES:
            return _with_logical(Node(kind, _PRIMITIVE_BYTES[kind]), document)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._define(kind, document, space, path, deep)
        if kind in {"array", "map"}:
            item = self.node(
                document.get("items" if kind == "array" else "values"), space, f"{path}[]", deep + 1
            )
            return Node(kind, 1, fields=(("", item),))
        return self._known(kind, space, path, deep)

    def _known(self, name: str, space: str, path: str, deep: int) -> Node:
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self.named and full not in self.open:
            full = name
        if full in self.open:
            msg = f"{path}: {full!r} has itself among its fields, which no column can"
            raise ValueError(msg)
        if full not in self.named:
            msg = f"{path or 'it'}: no type {name!r} is known here"
            raise ValueError(msg)
        node = self.named[full]
        self._grow(node.weight, deep + node.height, path)
        return node

    def _grow(self, count: int, deep: int, path: str) -> None:
        self.count += count
        if self.count > _NODES_MOST or deep > _DEPTH_MOST:
            msg = f"{path or 'it'}: more than {_NODES_MOST} types, or deeper than {_DEPTH_MOST}"
            raise ValueError(msg)

    def _define(
        self, kind: str, document: dict[str, Any], space: str, path: str, deep: int
    ) -> Node:
        name = document.get("name")
        if not isinstance(name, str):
            msg = f"{path or 'it'}: a {kind} without a name"
            raise ValueError(msg)  # noqa: TRY004 - wrong data, as all here
        own = document.get("namespace")
        if "." in name:
            own = name.rpartition(".")[0]
        elif not isinstance(own, str):
            own = space
        full = f"{own}.{name.rpartition('.')[2]}" if own else name
        if full in self.named or full in self.open:
            msg = f"{path}: {full!r} is defined twice"
            raise ValueError(msg)
        self.open.append(full)
        self.named[full] = self._build(document, own, path, deep)
        self.open.pop()
        return self.named[full]

    def _build(self, document: dict[str, Any], space: str, path: str, deep: int) -> Node:
        kind = document["type"]
        if kind == "enum":
            symbols = cast("list[Any]", document.get("symbols"))
            if type(symbols) is not list or not all(isinstance(one, str) for one in symbols):
                msg = f"{path or 'it'}: the symbols of an enum are {symbols!r:.80}"
                raise ValueError(msg)
            return Node("enum", 1, symbols=tuple(symbols))
        if kind == "fixed":
            size = document.get("size")
            if not isinstance(size, int) or not 0 <= size <= _FIXED_MOST:
                msg = f"{path or 'it'}: the size of a fixed type is {size!r:.80}"
                raise ValueError(msg)
            return _with_logical(Node("fixed", size, size=size), document)
        members = document.get("fields")
        if not isinstance(members, list):
            msg = f"{path or 'it'}: the fields of a record are {members!r:.80}"
            raise ValueError(msg)  # noqa: TRY004 - wrong data, as all here
        fields: dict[str, Node] = {}
        for member in cast("list[object]", members):
            known = cast("dict[str, object]", member if isinstance(member, dict) else {})
            name = known.get("name")
            if not isinstance(name, str) or name in fields:
                msg = f"{path or 'it'}: a field without a name, or with one that is taken: {name!r}"
                raise ValueError(msg)
            where = f"{path}.{name}" if path else name
            fields[name] = self.node(known.get("type"), space, where, deep + 1)
        return Node(
            "record", sum(one.least for one in fields.values()), fields=tuple(fields.items())
        )

    def _union(self, branches: list[object], space: str, path: str, deep: int) -> Node:
        nodes = [self.node(branch, space, path, deep + 1) for branch in branches]
        nulls = [node.kind == "null" for node in nodes]
        if len(nodes) != 2 or sum(nulls) != 1:  # noqa: PLR2004 - null and another
            told = json.dumps(branches)
            msg = (
                f"{path or 'it'}: the union {told:.120}; one column has one type, so only a union "
                "of null and one other is read. Write it as a record with a field for each"
            )
            raise ValueError(msg)
        other = nodes[1] if nulls[0] else nodes[0]
        return Node("nullable", 1, fields=(("", other),), null_first=nulls[0])


def _with_logical(node: Node, document: dict[str, Any]) -> Node:
    """Return a node with its logical type; one that does not fit counts as if it were not there."""
    logical = document.get("logicalType")
    if not isinstance(logical, str):
        return node
    if logical == "decimal" and node.kind in {"bytes", "fixed"}:
        digits, scale = document.get("precision"), document.get("scale", 0)
        if (
            isinstance(digits, int)
            and isinstance(scale, int)
            and (0 < digits <= _DIGITS_MOST and 0 <= scale <= digits)
        ):
            return Node(node.kind, node.least, "decimal", node.size, (digits, scale))
        return node
    if _LOGICAL.get(logical) == node.kind:
        return Node(node.kind, node.least, logical)
    return node


def arrow_type(node: Node) -> Any:  # noqa: ANN401 - a type of an optional dependency
    """Return the `pyarrow.DataType` of a node's values."""
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    plain = {
        "null": arrow.null,
        "boolean": arrow.bool_,
        "int": arrow.int32,
        "long": arrow.int64,
        "float": arrow.float32,
        "double": arrow.float64,
        "bytes": arrow.large_binary,
        "string": arrow.large_string,
        "enum": arrow.large_string,
    }
    if node.logical == "decimal":
        return (arrow.decimal128 if node.digits[0] <= 38 else arrow.decimal256)(*node.digits)  # noqa: PLR2004 - what 128 bits hold
    if node.logical == "date":
        return arrow.date32()
    if node.logical:
        what, _, unit = node.logical.rpartition("-")
        if what == "time":
            return arrow.time32("ms") if unit == "millis" else arrow.time64("us")
        return arrow.timestamp(_UNITS[unit], "UTC" if what == "timestamp" else None)
    if node.kind in plain:
        return plain[node.kind]()
    if node.kind == "fixed":
        return arrow.binary(node.size)
    if node.kind == "nullable":
        return arrow_type(node.item)
    if node.kind == "record":
        return arrow.struct([arrow_field(name, one) for name, one in node.fields])
    item = arrow_field("item" if node.kind == "array" else "value", node.item)
    return arrow.large_list(item) if node.kind == "array" else arrow.map_(arrow.string(), item)


def arrow_field(name: str, node: Node) -> Any:  # noqa: ANN401 - see above
    """Return the `pyarrow.Field` of a node."""
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    return arrow.field(name, arrow_type(node), nullable=node.kind in {"nullable", "null"})
