"""Where the numbers in JSON objects are, and how they were written. Pure."""

from __future__ import annotations

import json
import re
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, Final

from streaming_core._virtual._kinds._records import arrow
from streaming_core._virtual._kinds._whole_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._virtual._kinds._whole_numbers import Path

__all__ = ["NumbersAgain", "number_leaves"]

_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_WHOLE: Final = re.compile(rb"(?<![0-9.eE+])-?[0-9]+(?![0-9.eE])")


def number_leaves(path: Path, values: Any) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - of an optional dependency
    """Yield the arrays of numbers in an inferred column, with their paths."""
    types = arrow().types
    kind = values.type
    if types.is_struct(kind):
        for at, field in enumerate(kind):
            yield from number_leaves((*path, field.name), values.field(at))
    elif types.is_list(kind):
        # The items of lists of nulls must not be touched; see `stand_in`.
        if not types.is_null(kind.value_type):
            yield from number_leaves((*path, None), values.values)
    elif types.is_integer(kind) or types.is_floating(kind):
        yield path, values


class NumbersAgain:
    """One leaf of some rows, to be looked at again."""

    def __init__(
        self,
        path: Path,
        lines: bytes,
        ends: NDArray[np.int64],
        parse: Callable[[bytes, Any], Any],
    ) -> None:
        """`parse` returns the rows of lines as a table with a schema."""
        self._path = path
        self._lines = lines
        self._ends = ends
        self._parse = parse

    def unsigned(self) -> Any:  # noqa: ANN401 - see above
        """Parse nothing but this leaf, as `uint64`."""
        library = arrow()
        kind = library.uint64()
        for step in reversed(self._path[1:]):
            kind = library.list_(kind) if step is None else library.struct([(step, kind)])
        name = str(self._path[0])
        table = self._parse(self._lines, library.schema([(name, kind)]))
        found: list[Any] = []
        for chunk in table.column(0).chunks:
            found += [values for _, values in number_leaves((name,), chunk)]
        return library.chunked_array(found, library.uint64())

    def whole(self, rows: NDArray[np.bool_]) -> Iterable[int]:
        """Read the rows as Python does, which knows numbers of any length."""
        bounds: Iterable[tuple[int, int]] = pairwise([0, *self._ends.tolist()])
        if len(rows) == len(self._ends) and None not in self._path:
            bounds = compress(bounds, rows.tolist())
        for start, stop in bounds:
            text = self._lines[start:stop]
            try:
                row: object = json.loads(text, parse_int=whole_number)
            except ValueError:
                # Arrow reads more than Python does, such as Inf. Then all numbers of the row count.
                for found in _WHOLE.finditer(_TEXT.sub(b"", text)):
                    yield whole_number(found[0].decode())
            else:
                yield from _whole_in(row, self._path)


def _whole_in(value: object, path: Path) -> Iterator[int]:
    if not path:
        if isinstance(value, int) and not isinstance(value, bool):
            yield value
    elif path[0] is None:
        if isinstance(value, list):
            for item in value:  # pyright: ignore[reportUnknownVariableType] - of any JSON
                yield from _whole_in(item, path[1:])  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, dict):
        yield from _whole_in(value.get(path[0]), path[1:])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
