"""Collecting everything that is wrong with a document, and checking single values of it."""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard, cast, final

from streaming_core.errors import IndexInvalidError, Problem

__all__ = ["MAX_PROBLEMS", "Problems", "is_array", "member", "shown"]

MAX_PROBLEMS: Final = 1000
"""How many problems are kept; the rest is only counted."""

_MAX_SHOWN = 60
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "a boolean",
    dict: "an object",
    float: "a number with a fraction or exponent",
    int: "an integer",
    list: "a list",
    str: "a text",
}


@final
class Problems:
    """What is wrong so far. Its check methods return the value if it is right, else None.

    Example:
        >>> problems = Problems()
        >>> problems.integer(True, "$.version", 0, 9)
        >>> str(problems.listed()[0])
        '$.version: required an integer, came a boolean: true'
    """

    __slots__ = ("_kept", "_more")

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        """Return how many there are, kept or not."""
        return len(self._kept) + self._more

    def add(self, path: str, text: str, kind: str) -> None:
        """Note one problem; beyond `MAX_PROBLEMS` it is only counted."""
        if len(self._kept) < MAX_PROBLEMS:
            self._kept.append(Problem(path, text, kind))
        else:
            self._more += 1

    def listed(self) -> tuple[Problem, ...]:
        """Return the problems in the order they were found, with a last one for the uncounted."""
        if not self._more:
            return tuple(self._kept)
        return (*self._kept, Problem("$", f"and {self._more} more problems, not listed", "more"))

    def check(self, where: str) -> None:
        """Raise `IndexInvalidError` if there is any problem."""
        if self._kept:
            raise IndexInvalidError(where, self.listed())

    # --- values -----------------------------------------------------------------------------------

    def wrong_type(self, value: object, path: str, wanted: str) -> None:
        """Note that `value` is not `wanted`."""
        came = "null" if value is None else f"{_TYPE_NAMES[type(value)]}: {shown(value)}"
        self.add(path, f"required {wanted}, came {came}", "type")

    def integer(self, value: object, path: str, low: int, high: int) -> int | None:
        """Check for an integer in `low … high`, both included; booleans are none."""
        if not isinstance(value, int) or isinstance(value, bool):
            self.wrong_type(value, path, "an integer")
            return None
        if not low <= value <= high:
            self.add(path, f"required {low} … {high}, came {shown(value)}", "range")
            return None
        return value

    def text(self, value: object, path: str) -> str | None:
        """Check for a text that is not empty."""
        if not isinstance(value, str):
            self.wrong_type(value, path, "a text")
            return None
        if not value:
            self.add(path, "required a text that is not empty", "value")
            return None
        return value

    def members(self, value: object, path: str) -> dict[str, Any] | None:
        """Check for an object."""
        if not isinstance(value, dict):
            self.wrong_type(value, path, "an object")
            return None
        return cast("dict[str, Any]", value)

    def array(self, value: object, path: str) -> list[Any] | None:
        """Check for a list."""
        if is_array(value):
            return value
        self.wrong_type(value, path, "a list")
        return None

    def texts(self, value: object, path: str) -> tuple[str, ...] | None:
        """Check for a list of texts that are not empty."""
        items = self.array(value, path)
        if items is None:
            return None
        checked = [self.text(item, f"{path}[{i}]") for i, item in enumerate(items)]
        good = tuple(text for text in checked if text is not None)
        return good if len(good) == len(checked) else None


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Say whether `value` is a list; its items are still unknown."""
    return isinstance(value, list)


def member(path: str, key: str) -> str:
    """Return the JSON path of `key` below `path`.

    Example:
        >>> member("$.shards[3]", "samples"), member("$", "a b")
        ('$.shards[3].samples', "$['a b']")
    """
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{shown(key)}]"


def shown(value: object) -> str:
    """Return `value` for a message, short whatever it is.

    Example:
        >>> shown("abc"), shown([1, 2])
        ("'abc'", '2 item(s)')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN * 3:
        return f"an integer of {value.bit_length()} bits"  # its digits may be too many to print
    if isinstance(value, list | dict):
        return f"{len(cast('list[object]', value))} item(s)"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
