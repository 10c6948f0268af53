"""What a user does to rows and batches on their way to the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from streaming_core._arguments import checked, suggests, unexpected
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BatchTransform", "RowFilter", "RowTransform", "Transforms"]

RowTransform: TypeAlias = Callable[[Any], Any]
"""From a row to a row, or to a list or an iterator of as many rows as there shall be."""
RowFilter: TypeAlias = Callable[[Any], bool]
"""Tells whether a row is wanted."""
BatchTransform: TypeAlias = Callable[[Any], Any]
"""From a finished batch to what the trainer is given."""


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done to rows and batches, in the process that reads them.

    Where they travel to workers that are not forked, all functions must be picklable.

    Example:
        >>> def halves(row):
        ...     yield {"x": row["x"] / 2}
        ...     yield {"x": row["x"] / 2}
        >>> wanted = Transforms.of(filter=lambda row: row["x"] > 1, transform=halves)
        >>> wanted.rows([{"x": 1}, {"x": 3}])
        [{'x': 1.5}, {'x': 1.5}]
    """

    keep: RowFilter | None = None
    """Which rows are wanted, asked before anything is done to them."""
    steps: tuple[RowTransform, ...] = ()
    """What is done to each row, one after the other."""
    batch: BatchTransform | None = None
    """What is done to each batch."""

    @classmethod
    def of(
        cls,
        *,
        transform: RowTransform | Sequence[RowTransform] | None = None,
        filter: RowFilter | None = None,  # noqa: A002 - what everybody calls it
        batch_transform: BatchTransform | None = None,
    ) -> Self | None:
        """Return them, or None if there are none; `SchemaError` names what is no function."""
        given: object = () if transform is None else transform
        if not callable(given) and not isinstance(given, list | tuple):
            raise unexpected(given, "transform", "a function or a list of functions")
        steps = (given,) if callable(given) else tuple(cast("Sequence[RowTransform]", given))
        for at, step in enumerate(steps):
            if not callable(step):
                raise unexpected(step, f"transform[{at}]", "a function")
        checked({"filter": filter, "batch_transform": batch_transform})
        if filter is None and not steps and batch_transform is None:
            return None
        return cls(filter, steps, batch_transform)

    @property
    def changes_rows(self) -> bool:
        """Whether single rows are looked at, and not only whole batches."""
        return self.keep is not None or bool(self.steps)

    def rows(self, rows: Iterable[Any], describe: Callable[[int], str] | None = None) -> list[Any]:
        """Return what becomes of some rows; what a function raises is noted to come from there.

        `describe` says of the number of a row which sample it is.

        Raises:
            SchemaError: A transform returned nothing.
        """
        made: list[Any] = []
        for at, row in enumerate(rows):
            try:
                made += self._made_of(row)
            except Exception as error:
                if describe is not None:
                    error.add_note(f"raised for {describe(at)}")
                raise
        return made

    def _made_of(self, row: Any) -> list[Any]:  # noqa: ANN401 - any row
        rows = [row]
        if self.keep is not None and not _call(self.keep, row, "filter"):
            return []
        for step in self.steps:
            made: list[Any] = []
            for each in rows:
                _add(made, step, each)
            rows = made
        return rows


Transforms.__init__ = suggests()(Transforms.__init__)  # type: ignore[method-assign]


def _add(made: list[Any], step: RowTransform, row: Any) -> None:  # noqa: ANN401 - any row
    result = _call(step, row)
    if result is None:
        msg = (
            f"the transform {_name(step)} returned None for a row; return the row, or leave rows "
            "out with filter=..., or by returning an empty list"
        )
        raise SchemaError(msg)
    if not isinstance(result, list | Iterator):
        made.append(result)
        return
    try:
        made.extend(cast("Iterable[Any]", result))
    except Exception as error:
        _note(error, step, row)
        raise


def _call(step: Callable[[Any], Any], row: Any, role: str = "transform") -> Any:  # noqa: ANN401 - any row
    try:
        return step(row)
    except StopIteration as error:
        # Whoever iterates would take it for the end.
        msg = f"the {role} {_name(step)} raised StopIteration, as next() does on an empty iterator"
        stopped = RuntimeError(msg)
        _note(stopped, step, row, role)
        raise stopped from error
    except Exception as error:
        _note(error, step, row, role)
        raise


def _note(
    error: Exception,
    step: Callable[[Any], Any],
    row: Any,  # noqa: ANN401 - any row
    role: str = "transform",
) -> None:
    what = type(row).__name__
    if isinstance(row, dict):
        what = f"the columns {sorted(map(str, cast('dict[object, object]', row)))}"
    error.add_note(f"raised by the {role} {_name(step)}, given a row of {what:.200}")


def _name(step: object) -> str:
    name: str = getattr(step, "__qualname__", type(step).__qualname__)
    return name
