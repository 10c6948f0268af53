"""What can be said of rows before any is read, from what a format notes of its columns. Pure.

For every unit at once: whether a condition may hold for one of its rows, may not hold, may be
unknown. Nothing is ever ruled out that could be.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._expression import Call, Field, Literal, Node, evaluated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["ANYTHING", "FALSE", "TRUE", "UNKNOWN", "Facts", "are_alike", "outcomes"]

TRUE: Final = 1
"""The condition may hold for a row."""
FALSE: Final = 2
UNKNOWN: Final = 4
"""It may be neither, as where a value is missing."""
ANYTHING: Final = TRUE | FALSE | UNKNOWN

Flags: TypeAlias = "NDArray[np.uint8]"

_FLIPPED: Final = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}
_MOST_VALUES: Final = 256
"""Of a list; of longer ones only the ends are looked at."""
_EXACT_INTEGERS: Final = 1 << 53
"""Up to here a double tells whole numbers apart."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one column, for each unit."""

    least: Any
    """A `pyarrow.Array` of values that none is less than; null where that is not known."""
    most: Any
    """Likewise that none is more than."""
    has_null: NDArray[np.bool_]
    """Whether a value may be missing."""
    has_value: NDArray[np.bool_]
    """Whether one may be there."""

    @property
    def may_be_nan(self) -> bool:
        """Whether there may be values that are no numbers, which bounds say nothing of."""
        return bool(_types().is_floating(self.least.type))


def outcomes(tree: Node | None, facts: Mapping[str, Facts], count: int) -> Flags:
    """Return for each of `count` units what a condition may be for one of its rows.

    Columns that `facts` lack may have any value.
    """
    if tree is None:
        return _all(count, ANYTHING)
    return _Judge(facts, count).flags(tree)


class _Judge:
    """Goes through a tree."""

    def __init__(self, facts: Mapping[str, Facts], count: int) -> None:
        self._facts = facts
        self._count = count

    def flags(self, node: Node) -> Flags:
        match node:
            case Literal(scalar):
                return _all(self._count, _flag_of(scalar))
            case Call("and_kleene", (left, right)):
                return _both(self.flags(left), self.flags(right))
            case Call("or_kleene", (left, right)):
                return _not(_both(_not(self.flags(left)), _not(self.flags(right))))
            case Call("invert", (inner,)):
                return _not(self.flags(inner))
            case Call("is_null", (inner,), options):
                return self._is_null(inner, options)
            case Call("is_valid", (inner,)):
                return _not(self._is_null(inner, None))
            case Call("is_in", (Field((name,)),), options):
                return self._is_in(name, options)
            case Call(name, (Field((column,)), Literal(scalar))) if name in _FLIPPED:
                return self._compared(name, column, scalar)
            case Call(name, (Literal(scalar), Field((column,)))) if name in _FLIPPED:
                return self._compared(_FLIPPED[name], column, scalar)
            case _:
                return _all(self._count, ANYTHING)

    def _compared(self, name: str, column: str, scalar: Any) -> Flags:  # noqa: ANN401 - an Arrow scalar
        facts = self._facts.get(column)
        if not scalar.is_valid:
            return _all(self._count, UNKNOWN)
        if facts is None:
            return _all(self._count, ANYTHING)
        found = _all(self._count, TRUE | FALSE)
        if are_alike(facts.least.type, scalar.type) and not _is_nan(scalar):
            found = _bounded(name, facts, scalar)
        if facts.may_be_nan:
            found |= np.uint8(TRUE if name == "not_equal" else FALSE)
        return _with_nulls(found, facts, UNKNOWN)

    def _is_in(self, column: str, options: Any) -> Flags:  # noqa: ANN401 - an Arrow scalar
        facts = self._facts.get(column)
        values = _plain_set(options)
        if facts is None or values is None:
            return _all(self._count, ANYTHING)
        null_flag = TRUE if values.null_count else FALSE
        found = _all(self._count, TRUE | FALSE)
        chosen = _as_column(values.drop_null(), facts.least.type)
        if chosen is not None:
            found = _member(facts, chosen)
            if facts.may_be_nan:
                found |= FALSE
        return _with_nulls(found, facts, null_flag)

    def _is_null(self, inner: Node, options: Any) -> Flags:  # noqa: ANN401 - see above
        if isinstance(inner, Field):
            facts = self._facts.get(inner.path[0]) if len(inner.path) == 1 else None
            if facts is None:
                return _all(self._count, TRUE | FALSE)
            takes_nan = options is not None and options["nan_is_null"].as_py()
            is_missing = facts.has_null | bool(takes_nan and facts.may_be_nan)
            found = np.where(is_missing, TRUE, 0) | np.where(facts.has_value, FALSE, 0)
            return found.astype(np.uint8)
        flags = self.flags(inner)
        there = np.where(flags & (TRUE | FALSE), FALSE, 0)
        return (np.where(flags & UNKNOWN, TRUE, 0) | there).astype(np.uint8)


# --- one condition --------------------------------------------------------------------------------


def _bounded(name: str, facts: Facts, scalar: Any) -> Flags:  # noqa: ANN401 - an Arrow scalar
    """Return what comparing the values that are there may give, NaN left out."""
    less_most = _applied("less", facts.most, scalar)
    less_least = _applied("less", facts.least, scalar)
    more_most = _applied("greater", facts.most, scalar)
    more_least = _applied("greater", facts.least, scalar)
    if less_most is None or less_least is None or more_most is None or more_least is None:
        return _all(len(facts.has_null), TRUE | FALSE)
    match name:
        case "less":  # all if the most is less, none if the least is not
            return _flags(always=less_most.true, never=less_least.false)
        case "greater":
            return _flags(always=more_least.true, never=more_most.false)
        case "less_equal":
            return _flags(always=more_most.false, never=more_least.true)
        case "greater_equal":
            return _flags(always=less_least.false, never=less_most.true)
        case _:
            outside = more_least.true | less_most.true
            same = more_most.false & less_least.false
            equal = _flags(always=same, never=outside)
            return equal if name == "equal" else _not(equal)


def _member(facts: Facts, values: Any) -> Flags:  # noqa: ANN401 - an Arrow array
    """Return whether the values that are there may be among `values`, which have their type."""
    count = len(facts.has_null)
    if len(values) > _MOST_VALUES:
        ordered = values.take(_compute().sort_indices(values))
        above = _bounded("greater_equal", facts, ordered[0])
        below = _bounded("less_equal", facts, ordered[len(ordered) - 1])
        return (_both(above, below) | FALSE).astype(np.uint8)
    may, surely = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for value in values:
        equal = _bounded("equal", facts, value)
        may |= (equal & TRUE) != 0
        surely |= equal == TRUE
    return _flags(always=surely, never=~may)


class _Surely(NamedTuple):
    true: NDArray[np.bool_]
    false: NDArray[np.bool_]


def _applied(name: str, bounds: Any, scalar: Any) -> _Surely | None:  # noqa: ANN401 - Arrow's
    """Return where a comparison is surely true, and where surely false; None if there is none."""
    arrow, compute = _arrow(), _compute()
    sign = operator.lt if name == "less" else operator.gt
    try:  # as an expression, so that types are brought together as they are when rows are read
        found = evaluated(sign(compute.field("x"), scalar), arrow.table({"x": bounds}))
    except arrow.ArrowException:
        return None
    true = found.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - the value
    false = ~found.fill_null(True).to_numpy(zero_copy_only=False)  # noqa: FBT003 - the value
    return _Surely(true, false)


def _flags(*, always: NDArray[np.bool_], never: NDArray[np.bool_]) -> Flags:
    return (np.where(never, 0, TRUE) | np.where(always, 0, FALSE)).astype(np.uint8)


def _with_nulls(found: Flags, facts: Facts, null_flag: int) -> Flags:
    there = np.where(facts.has_value, found, 0)
    return (there | np.where(facts.has_null, null_flag, 0)).astype(np.uint8)


def _not(flags: Flags) -> Flags:
    swapped = ((flags & TRUE) << 1) | ((flags & FALSE) >> 1)
    return (swapped | (flags & UNKNOWN)).astype(np.uint8)


def _both(left: Flags, right: Flags) -> Flags:
    true = left & right & TRUE
    false = (left | right) & FALSE
    either = ((left & UNKNOWN) != 0) & ((right & (TRUE | UNKNOWN)) != 0)
    other = ((right & UNKNOWN) != 0) & ((left & TRUE) != 0)
    return (true | false | np.where(either | other, UNKNOWN, 0)).astype(np.uint8)


def _all(count: int, flags: int) -> Flags:
    return np.full(count, flags, np.uint8)


def _flag_of(scalar: Any) -> int:  # noqa: ANN401 - an Arrow scalar
    if not _types().is_boolean(scalar.type):
        return ANYTHING
    if not scalar.is_valid:
        return UNKNOWN
    return TRUE if scalar.as_py() else FALSE


# --- values ---------------------------------------------------------------------------------------


def _plain_set(options: Any) -> Any:  # noqa: ANN401 - Arrow's
    """Return the values of a list to be found in, None if it is not known how they are meant."""
    if options is None or options["null_matching_behavior"].as_py() != 0:
        return None
    values = options["value_set"]
    return values.values if values.is_valid else None


def _as_column(values: Any, kind: Any) -> Any:  # noqa: ANN401 - Arrow's
    """Return values in a column's type, None if that might change what they are equal to."""
    arrow, types = _arrow(), _types()
    if not len(values):
        return arrow.array([], kind)
    if not are_alike(values.type, kind):
        return None
    if values.type.equals(kind):
        return None if types.is_floating(kind) and _compute().is_nan(values).true_count else values
    try:
        found = values.cast(kind)
        if types.is_integer(values.type) and types.is_integer(kind):
            return found
        if types.is_integer(values.type) and types.is_float64(kind):
            whole: list[int] = values.to_pylist()
            return found if max(map(abs, whole)) < _EXACT_INTEGERS else None
    except arrow.ArrowException:
        return None
    return found if _is_text(types, kind) and _is_text(types, values.type) else None


def _is_nan(scalar: Any) -> bool:  # noqa: ANN401 - an Arrow scalar
    return bool(_types().is_floating(scalar.type)) and scalar.as_py() != scalar.as_py()


def are_alike(one: Any, other: Any) -> bool:  # noqa: ANN401 - Arrow types
    """Tell whether values of two types are compared as what they are."""
    types = _types()
    families: tuple[Callable[[Any], bool], ...] = (
        lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        types.is_boolean,
        lambda kind: _is_text(types, kind),
        lambda kind: types.is_timestamp(kind) or types.is_date(kind),
        types.is_time,
        types.is_duration,
    )
    return any(family(one) and family(other) for family in families)


def _is_text(types: Any, kind: Any) -> bool:  # noqa: ANN401 - Arrow's
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _arrow() -> Any:  # noqa: ANN401 - a module
    return require("pyarrow", extra="parquet", purpose="filters")


def _compute() -> Any:  # noqa: ANN401 - a module
    return require("pyarrow.compute", extra="parquet", purpose="filters")


def _types() -> Any:  # noqa: ANN401 - a module
    return require("pyarrow.types", extra="parquet", purpose="filters")
