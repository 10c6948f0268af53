"""Helpers."""

from __future__ import annotations

import functools
import os
import random
import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from streaming_core._units import parse_bytes, parse_count
from streaming_writer import merge_index

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "bytes_to_int",
    "clean_stale_shared_memory",
    "get_import_exception_message",
    "get_list_arg",
    "merge_index",
    "number_abbrev_to_int",
    "retry",
    "wait_for_file_to_exist",
]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_merge_index_from_root = merge_index


def clean_stale_shared_memory() -> None:
    """Do nothing: nothing is left in shared memory."""


def get_list_arg(text: str) -> list[str]:
    """Return the parts of a text that commas divide.

    Example:
        >>> get_list_arg("a,b"), get_list_arg("")
        (['a', 'b'], [])
    """
    return text.split(",") if text else []


def bytes_to_int(bytes_str: int | str) -> int:
    """Return the bytes that a text such as `64mb` means."""
    return parse_bytes(bytes_str)


def number_abbrev_to_int(abbrev_str: int | str) -> int:
    """Return the number that a text such as `100k` means."""
    return parse_count(abbrev_str) if isinstance(abbrev_str, str) else abbrev_str


def wait_for_file_to_exist(
    filename: str, poll_interval: float, timeout: float, err_msg: str
) -> None:
    """Look for a file until it is there.

    Raises:
        RuntimeError: It is not there after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not os.path.exists(filename):  # noqa: PTH110 - a text stays one
        if time.monotonic() >= deadline:
            msg = f"{err_msg} ({filename} did not appear within {timeout} seconds)"
            raise RuntimeError(msg)
        time.sleep(poll_interval)


def retry(
    exc_class: type[Exception] | tuple[type[Exception], ...] = Exception,
    clean_up_fn: Callable[[], object] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Let a function be called again after an error, with pauses that double.

    `clean_up_fn` is called after each failure that is not the last.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def again(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            for attempt in range(num_attempts - 1):
                try:
                    return function(*args, **kwargs)
                except exc_class:
                    if clean_up_fn is not None:
                        clean_up_fn()
                    time.sleep(initial_backoff * 2**attempt + random.uniform(0, max_jitter))  # noqa: S311 - no secret
            return function(*args, **kwargs)

        return again

    return decorate


def get_import_exception_message(package_name: str, extra_deps: str) -> str:
    """Return what to say where an optional package is missing."""
    return f"{package_name} is not installed; pip install 'streaming-core[{extra_deps}]'"
