"""What may stand between the brackets of a data set."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["checked_ids", "each_of", "sample_at", "select"]


def sample_at(at: int, count: int) -> int:
    """Return the id that `at` means, which may count from the end; `IndexError` if there is none.

    Example:
        >>> sample_at(-1, 10)
        9
    """
    if not -count <= at < count:
        msg = f"sample {at} is out of range: there are {count}, counted from 0"
        raise IndexError(msg)
    return at + count if at < 0 else at


def checked_ids(ids: Any, count: int) -> NDArray[np.int64]:  # noqa: ANN401 - arrays and lists
    """Return `ids` as a flat array of ids from 0; negative ones count from the end.

    They are an integer, a slice, a range, a list, or whatever NumPy takes for an array, such as a
    tensor.

    Raises:
        IndexError: One is out of range.
        TypeError: They are no integers.
    """
    if isinstance(ids, slice):
        return np.arange(*ids.indices(count), dtype=np.int64)
    try:
        given = np.asarray(ids)
    except ValueError as error:  # lists of different lengths
        msg = f"sample ids must be integers in one array, but came {ids!r:.60}: {error}"
        raise TypeError(msg) from error
    if given.dtype.kind == "O":
        if given.size and all(isinstance(number, int) for number in given.ravel().tolist()):
            msg = f"a sample of {ids!r:.60} is out of range: there are {count}, counted from 0"
            raise IndexError(msg)
        msg = f"sample ids must be integers, but came {type(ids).__name__} {ids!r:.60}"
        raise TypeError(msg)
    if given.size and given.dtype.kind not in "iu":
        hint = "; boolean masks are not taken, use numpy.flatnonzero(mask)"
        msg = f"sample ids must be integers, but these are {given.dtype}"
        raise TypeError(msg + (hint if given.dtype.kind == "b" else ""))
    given = given.ravel()
    # Compared before it is converted: the largest unsigned numbers would come out negative.
    bad = (given < -count) | (given >= count) if given.dtype.kind != "u" else given >= count
    if bad.any():
        msg = f"sample {given[bad][0]} is out of range: there are {count}, counted from 0"
        raise IndexError(msg)
    flat = given.astype(np.int64, copy=False)
    return np.where(flat < 0, flat + count, flat)


def each_of(one: Callable[[int], Any], ids: NDArray[np.int64]) -> list[Any]:
    """Return what `one` makes of each id; a StopIteration of it becomes a `RuntimeError`.

    Torch would take it for the end of the data. A generator raises the other one in its place.
    """
    return list(one(number) for number in ids.tolist())  # noqa: C400 - see above


def select(
    at: Any,  # noqa: ANN401 - checked here
    count: int,
    one: Callable[[int], Any],
    many: Callable[[NDArray[np.int64]], list[Any]],
) -> Any:  # noqa: ANN401 - a sample, or nested lists of them
    """Return the sample or nested lists of samples that `at` stands for.

    An integer gives a sample; a slice, an array, a tensor or a (nested) list of integers gives
    lists of the same shape.
    """
    if isinstance(at, slice):
        return many(np.arange(*at.indices(count), dtype=np.int64))
    if _is_array(at):
        array: NDArray[Any] = np.asarray(at)
        flat = checked_ids(array, count)
        return _shaped(many(flat), array.shape) if array.ndim else one(int(flat[0]))
    items = _items(at)
    if items is not None:
        if all(isinstance(item, int | np.integer) for item in items):
            return many(checked_ids(items, count))
        return [select(item, count, one, many) for item in items]
    try:
        number = operator.index(at)
    except TypeError:
        msg = (
            "wanted an integer, a slice, or a list or array of integers; came "
            f"{type(at).__name__} {at!r:.60}"
        )
        raise TypeError(msg) from None
    return one(sample_at(number, count))


def _items(at: Any) -> Sequence[Any] | None:  # noqa: ANN401 - anything may stand there
    return at if _is_list(at) else None


def _is_array(at: object) -> bool:
    return hasattr(at, "__array__") and not isinstance(at, type)


def _is_list(at: object) -> bool:
    return isinstance(at, Sequence) and not isinstance(at, str | bytes)


def _shaped(flat: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for size in reversed(shape[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)] if size else []
    return flat
