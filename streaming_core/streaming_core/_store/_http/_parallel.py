"""Requests side by side, and parts of large objects, which are tried again one by one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from streaming_core._store._http._gate import RefusedError
from streaming_core._store._http._wire import FAILURES, UntrustedError
from streaming_core._store._policy import RequestPolicy
from streaming_core._workers import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["in_parallel", "send_parts"]

_T = TypeVar("_T")

_PARALLEL: Final = 8
_PART_TRIES: Final = 4
_PART_PAUSE_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 30.0
_SERVER_ERRORS: Final = 500
_MAY_PASS: Final = frozenset({408, 429})


def in_parallel(tasks: Sequence[Callable[[], _T]], width: int = _PARALLEL) -> list[_T]:
    """Return what the tasks return, a few of which run at a time; the first error is raised.

    Example:
        >>> in_parallel([lambda: 1, lambda: 2])
        [1, 2]
    """
    return list(in_order(lambda task: task(), tasks, at_a_time=width))


def send_parts(tasks: Sequence[Callable[[], _T]], width: int) -> list[_T]:
    """Do as `in_parallel`, but try each task again whose failure may pass.

    Sending a large object takes many requests, and whoever tries the object again sends all of it:
    with one request in ten failing he would hardly ever get through.

    Example:
        >>> send_parts([lambda: 1, lambda: 2], 2)
        [1, 2]
    """
    return in_parallel([partial(_patiently, task) for task in tasks], width)


def _patiently(task: Callable[[], _T]) -> _T:
    policy = RequestPolicy(_PART_TRIES, first_pause=_PART_PAUSE_SECONDS)
    for failures in range(1, _PART_TRIES):
        try:
            return task()
        except RefusedError as error:
            wanted = error.retry_after or 0.0
            passes = error.status >= _SERVER_ERRORS or error.status in _MAY_PASS
            if not passes or wanted > _LONGEST_SECONDS:
                raise
        except UntrustedError:
            raise
        except FAILURES:
            wanted = 0.0
        policy.wait(max(wanted, policy.pause_seconds(failures)))
    return task()
