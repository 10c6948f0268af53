"""Which rows are wanted: what users give, made one thing that is told from others. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeGuard, cast, final

import xxhash

from streaming_core._extras import require
from streaming_core._virtual._expression import (
    Call,
    Field,
    Node,
    is_understood,
    packed_expression,
    tree_of,
)
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Filter"]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEMBERSHIPS: Final = ("in", "not in")
_TUPLE_SIZE: Final = 3


@final
@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A condition that rows meet or not; one whose truth is not known drops the row. Pickles."""

    expression: Any
    """A `pyarrow.compute.Expression`."""
    identity: str
    """Differs for filters that may keep other rows; the same in every process."""
    columns: tuple[str, ...] | None
    """The columns that it looks at, in order of their names; None if that cannot be told."""
    tree: Node | None
    """What it says; None if that cannot be told."""

    @classmethod
    def of(cls, given: object) -> Self:
        """Return what a user gave: an expression, or tuples as pandas takes them.

        Tuples are `(column, operator, value)`; in a list all of them must hold, in a list of lists
        all of one list. Operators are `== != < <= > >= in`, and `not in`. Of these only the last
        holds for a missing value, as pandas has it, unless None is among the values.

        Raises `SchemaError`, which is a `TypeError` too, if it is neither.
        """
        compute = require("pyarrow.compute", extra="parquet", purpose="filters")
        expression = given if isinstance(given, compute.Expression) else _of_tuples(given)
        try:
            packed = packed_expression(expression)
        except ValueError as error:
            msg = (
                f"filters: this expression cannot be used, {error}; name columns, as in field('x')"
            )
            raise SchemaError(msg) from error
        tree = None
        if is_understood():
            try:
                tree = tree_of(packed)
            except ValueError:
                tree = None  # then nothing is left out before it was looked at
        columns = None if tree is None else tuple(sorted(set(_names(tree))))
        return cls(expression, xxhash.xxh3_128_hexdigest(packed), columns, tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self.expression,)

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)


def _names(node: Node) -> Iterator[str]:
    match node:
        case Field(path):
            yield path[0]
        case Call(_, arguments):
            for argument in arguments:
                yield from _names(argument)
        case _:
            pass


def _of_tuples(given: object) -> Any:  # noqa: ANN401 - an expression
    if not _is_list(given) or not given:
        raise _no_filter(given)
    is_nested = [_is_list(item) and not _is_condition(item) for item in given]
    if not any(is_nested):
        return _all_of(given)
    if not all(is_nested):
        raise _no_filter(given)
    groups = [cast("Sequence[object]", item) for item in given]
    if not all(groups):
        raise _no_filter(given)
    found = _all_of(groups[0])
    for each in groups[1:]:
        found = found | _all_of(each)
    return found


def _all_of(given: Sequence[object]) -> Any:  # noqa: ANN401 - an expression
    found = _condition(given[0])
    for each in given[1:]:
        found = found & _condition(each)
    return found


def _is_list(given: object) -> TypeGuard[Sequence[object]]:
    return isinstance(given, list | tuple)


def _is_condition(given: object) -> bool:
    if not _is_list(given) or len(given) != _TUPLE_SIZE:
        return False
    return isinstance(given[0], str) and isinstance(given[1], str)


def _condition(given: object) -> Any:  # noqa: ANN401 - an expression
    if not _is_condition(given):
        raise _no_filter(given)
    arrow = require("pyarrow", extra="parquet", purpose="filters")
    compute = require("pyarrow.compute", extra="parquet", purpose="filters")
    name, sign, value = cast("tuple[str, str, object]", given)
    sign = " ".join(sign.split()).lower()
    try:
        if sign in _COMPARISONS:
            return _COMPARISONS[sign](compute.field(name), _scalar(arrow, value))
        if sign in _MEMBERSHIPS:
            found = compute.field(name).isin(_values(arrow, value, given))
            return ~found if sign == "not in" else found
    except arrow.ArrowException as error:
        msg = f"filters: {given!r:.200} has a value that Arrow cannot take: {error!s:.200}"
        raise SchemaError(msg) from error
    signs = ", ".join(map(repr, (*_COMPARISONS, *_MEMBERSHIPS)))
    msg = f"filters: no operator {sign!r} in {given!r:.200}; there are {signs}"
    raise SchemaError(msg)


def _scalar(arrow: Any, value: object) -> Any:  # noqa: ANN401 - a module; a scalar
    if value is None:
        msg = (
            "filters: a comparison with None holds for no row; write ('x', 'in', [None]) for rows "
            "without a value, ('x', 'not in', [None]) for the others"
        )
        raise SchemaError(msg)
    return value if isinstance(value, arrow.Scalar) else arrow.scalar(value)


def _values(arrow: Any, value: object, given: object) -> Any:  # noqa: ANN401 - see above
    if isinstance(value, arrow.Array | arrow.ChunkedArray):
        return value
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        msg = f"filters: {given!r:.200}: 'in' and 'not in' take a list of values"
        raise SchemaError(msg)
    each = list(cast("Iterable[object]", value))
    if isinstance(value, AbstractSet):
        each.sort(key=repr)  # the order of a set differs between processes
    return arrow.array(each)


def _no_filter(given: object) -> SchemaError:
    return SchemaError(
        "filters must be a pyarrow.compute expression, such as field('x') > 3, or tuples, such as "
        f"[('x', '>', 3), ('y', 'in', ['a', 'b'])]; came {given!r:.200}"
    )
