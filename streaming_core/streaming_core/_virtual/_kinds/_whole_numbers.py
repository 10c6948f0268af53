"""Whole numbers in text that are to stay what they are: of which type a column of numbers is. Pure.

Arrow's parsers make floats of a column as soon as one number is beyond 64 bits or has a fraction,
and floats round whole numbers beyond 53 bits: ids that differ become the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._whole import NEGATIVE, NUMBERS, WIDE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Again", "Path", "WholeNumbers", "whole_number"]

Path: TypeAlias = "tuple[str | None, ...]"
"""Names of a column and of what is in it; None are the items of a list."""

_EXACT: Final = 1 << 53
"""Up to here floats have all whole numbers."""
_MOST: Final = (1 << 63) - 1
_MOST_UNSIGNED: Final = (1 << 64) - 1
_MOST_DIGITS: Final = 40
"""Numbers of more are told as ones of so many: none of them fits a type."""
_KINDS: Final = ("int64", "double")


class Again(Protocol):
    """Looks at the text of a block of one column again."""

    def unsigned(self) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return its values as an Arrow array of `uint64`; `ValueError` if some are none."""
        ...

    def whole(self, rows: NDArray[np.bool_]) -> Iterable[int]:
        """Return the numbers that are written as whole ones among those of `rows`, or among all."""
        ...


@dataclass(slots=True)
class _Span:
    """The numbers of a column."""

    least: int = 0
    most: int = 0
    """Of those that are written as whole ones."""
    has_others: bool = False
    """Whether some are not."""


class WholeNumbers:
    """What is known of the numbers in each column of one file, from block to block."""

    def __init__(self) -> None:
        self._spans: dict[Path, _Span] = {}

    def see(self, path: Path, values: Any, again: Again) -> None:  # noqa: ANN401 - of an optional dependency
        """Take in a block of a column, an Arrow array as the parser inferred it.

        Only numbers matter; the text is looked at again only where floats may have been rounded.
        """
        kind = str(values.type)
        if kind not in _KINDS or values.null_count == len(values):
            return
        span = self._spans.setdefault(path, _Span())
        if kind == "int64":
            _widen(span, *_ends(values))
            return
        rows = _rounded(values)
        if not rows.any():
            span.has_others = True
            return
        try:
            _widen(span, *_ends(again.unsigned()))
        except ValueError:
            if all(abs(number) <= _EXACT for number in again.whole(rows)):
                span.has_others = True
                return
            every = list(again.whole(np.ones(len(rows), np.bool_)))
            least, most = min(every), max(every)
            # What fits and yet is not read as such, as +5 is not, is for floats only.
            fits = _fits_64(least, most)
            span.has_others |= fits or len(every) < len(values) - values.null_count
            _widen(span, least, most)

    def field(self, path: Path, field: Any) -> Any:  # noqa: ANN401 - see above
        """Return a field with types that hold the numbers in it, and what to know beside others.

        Raises `ValueError` if there is no such type; names the column, and a number.
        """
        kind = self._typed(path, field.type)
        span = self._spans.get(path)
        if span is None or str(kind) not in {*_KINDS, "uint64"}:
            return field.with_type(kind)
        marks = [NEGATIVE] * (span.least < 0) + [WIDE] * (not _is_exact(span))
        if marks:
            field = field.with_metadata({NUMBERS: b",".join(marks)})
        return field.with_type(kind)

    def _typed(self, path: Path, kind: Any) -> Any:  # noqa: ANN401 - see above
        library = require("pyarrow", extra="parquet", purpose="text files as data")
        if library.types.is_list(kind):
            return library.list_(self._typed((*path, None), kind.value_type))
        if library.types.is_struct(kind):
            fields = [each.with_type(self._typed((*path, each.name), each.type)) for each in kind]
            return library.struct(fields)
        span = self._spans.get(path)
        if span is None or str(kind) not in _KINDS:
            return kind
        if span.has_others:
            if not _is_exact(span):
                raise ValueError(_refused(path, span))
            return library.float64()
        if not _fits_64(span.least, span.most):
            raise ValueError(_refused(path, span))
        return library.int64() if span.most <= _MOST else library.uint64()


def whole_number(text: str) -> int:
    """Return the number that digits are; of very many only that it is huge."""
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        digits = "9" * _MOST_DIGITS
    found = int(digits or "0")
    return -found if text.startswith("-") else found


def _fits_64(least: int, most: int) -> bool:
    if least >= 0:
        return most <= _MOST_UNSIGNED
    return least >= -_MOST - 1 and most <= _MOST


def _is_exact(span: _Span) -> bool:
    return span.least >= -_EXACT and span.most <= _EXACT


def _widen(span: _Span, least: int | None, most: int | None) -> None:
    span.least = min(span.least, least or 0)
    span.most = max(span.most, most or 0)


def _ends(values: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - see above
    compute = require("pyarrow.compute", extra="parquet", purpose="text files as data")
    found = compute.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _rounded(values: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - see above
    """Return which floats may have been whole numbers that they are no longer."""
    numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    found: NDArray[np.bool_] = np.abs(numbers) >= _EXACT
    return found


def _refused(path: Path, span: _Span) -> str:
    name = ".".join("[]" if step is None else step for step in path).replace(".[]", "[]")
    number = span.most if span.most > max(_EXACT, -span.least) else span.least
    shown = f"{number}" if abs(number) < 10 ** (_MOST_DIGITS - 1) else "a number of many digits"
    why = "which no type of 64 bits holds"
    if span.has_others:
        why = "beside numbers that floats are for, which would change it"
    elif span.least < 0 < span.most:
        why = f"beside {min(span.least, span.most, key=abs)}, and no type of 64 bits holds both"
    return (
        f"column {name!r} has {shown} {why}. If it may be rounded, tell the types of the columns "
        f"that are wanted with schema={{{path[0]!r}: 'double'}} and the like"
    )
