"""Samples one by one, transformed; counted by the sample they come from where somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core.errors import CheckpointError
from streaming_reader._worker_state import CountedSamples, is_asked_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from streaming_reader._pipeline._transforms import Transforms

__all__ = ["CountedRows", "begin_samples"]

_ROWS: Final = "rows_of_sample"


def begin_samples(
    begin: Callable[[int], Generator[Any]],
    place: Mapping[str, Any],
    transforms: Transforms | None,
) -> Iterator[Any]:
    """Return the samples that `begin` gives, told how many to leave out, and transform them.

    Where a loader may ask, they know how many were taken of the sequence that `place` names.
    """
    if is_asked_for():
        if transforms is None or not transforms.changes_rows:
            return CountedSamples(begin, place)
        return CountedRows(begin, place, transforms)
    samples = begin(0)
    if transforms is None or not transforms.changes_rows:
        return samples
    return _transformed(samples, transforms)


def _transformed(samples: Generator[Any], transforms: Transforms) -> Generator[Any]:
    try:
        for sample in samples:
            yield from transforms.rows([sample])
    finally:
        samples.close()


class CountedRows(CountedSamples):
    """An iterator over transformed rows that goes on within the rows of one sample."""

    __slots__ = ("_given", "_made", "_transforms")

    def __init__(
        self,
        begin: Callable[[int], Generator[Any]],
        place: Mapping[str, Any],
        transforms: Transforms,
    ) -> None:
        """Give the rows that the samples of `begin` become; see `CountedSamples`."""
        super().__init__(begin, place)
        self._transforms = transforms
        self._made: list[Any] = []
        self._given = 0

    def __next__(self) -> Any:  # noqa: ANN401 - what transforms make
        """Return the next row."""
        while self._given == len(self._made):
            self._made, self._given = self._transforms.rows([super().__next__()]), 0
        self._given += 1
        return self._made[self._given - 1]

    def state_dict(self) -> dict[str, Any]:
        """Return how many samples were taken, and how many rows of the last one were given."""
        return {**super().state_dict(), _ROWS: self._given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the rows that were given when `state` was taken.

        Raises `CheckpointError` as `CountedSamples` does, and where the sample has fewer rows now.
        """
        super().load_state_dict(state)
        self._made, self._given = [], 0
        given: object = state.get(_ROWS, 0)
        taken = cast("int", super().state_dict()["samples"])
        if not given or not taken:
            return
        # The sample whose rows were being given is read and transformed once more.
        super().load_state_dict({**state, "samples": taken - 1})
        self._made = self._transforms.rows([super().__next__()])
        if not isinstance(given, int) or not 0 <= given <= len(self._made):
            msg = (
                f"{given!r:.40} rows of a sample were given, which becomes {len(self._made)} here: "
                "the transforms are others, or give something else each time; resume with those "
                "that the state was taken with"
            )
            raise CheckpointError(msg)
        self._given = given
