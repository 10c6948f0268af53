"""What the fault proxy can do to a request, and to which requests."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Cut",
    "Denied",
    "Dribble",
    "Empty",
    "Etag",
    "Fault",
    "Flip",
    "Html",
    "Latency",
    "NoRange",
    "OtherBytes",
    "Page",
    "Reset",
    "Rule",
    "Script",
    "Slow",
    "Stall",
    "Status",
    "Swallow",
    "WrongRange",
]

HTML: Final = b"<!DOCTYPE html><html><body>Please sign in.</body></html>\n"


# --- the connection -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends after so many bytes of the body, as if all had been said."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset after so many bytes of the body; None: before any answer."""

    after: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """After so many bytes of the body nothing more comes; None: no byte of an answer."""

    after: int | None = None


@dataclass(frozen=True, slots=True)
class Swallow:
    """The request is not read beyond its head, and never answered: a hole for uploads."""


@dataclass(frozen=True, slots=True)
class Slow:
    """The body comes at this speed."""

    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class Dribble:
    """The body comes in pieces of this size, each sent alone."""

    size: int = 64


@dataclass(frozen=True, slots=True)
class Latency:
    """The answer comes so much later."""

    seconds: float


# --- the answer -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """An answer that the server never gave."""

    code: int
    retry_after: str = ""
    body: bytes = b""
    after_server: bool = False
    """Whether the server had the request first, so that only the confirmation is lost."""


@dataclass(frozen=True, slots=True)
class Denied:
    """This status for requests whose `Authorization` does not have the text `valid`."""

    valid: str
    code: int = 401
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Page:
    """Status 200 and another body, with nothing else of the server's answer."""

    body: bytes


def Empty() -> Page:  # noqa: N802 - reads as the other faults do
    """Return the fault that answers 200 with nothing."""
    return Page(b"")


def Html() -> Page:  # noqa: N802 - as above
    """Return the fault that answers 200 with a page for people."""
    return Page(HTML)


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of this byte of the body is another; a negative one counts from its end."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class OtherBytes:
    """All headers are right and all bytes of the body are others."""


@dataclass(frozen=True, slots=True)
class WrongRange:
    """`Content-Range` says other bytes, so many further on, than those that were asked for."""

    shift: int = 1


@dataclass(frozen=True, slots=True)
class NoRange:
    """The server does not get to see the `Range`, and sends all with status 200."""


@dataclass(frozen=True, slots=True)
class Etag:
    """The answer names this version."""

    value: str = '"another"'


Fault: TypeAlias = (
    Cut
    | Reset
    | Stall
    | Swallow
    | Slow
    | Dribble
    | Latency
    | Status
    | Denied
    | Page
    | Flip
    | OtherBytes
    | WrongRange
    | NoRange
    | Etag
)


# --- which requests -------------------------------------------------------------------------------


@dataclass(slots=True)
class Rule:
    """A fault, and which of the requests that match `methods` and `path` it happens to.

    With `first` it is the first few, with `every` each so many-th, with `chance` any with this
    probability, drawn from `seed`; what is not given does not restrict. Those before `skip` are
    left alone and counted by none of these.
    """

    fault: Fault
    first: int | None = None
    every: int | None = None
    chance: float | None = None
    skip: int = 0
    methods: frozenset[str] = frozenset()
    """Empty: all."""
    path: str = "*"
    """A shell pattern for the decoded path."""
    where: Callable[[str, str], bool] | None = None
    """Called with method and target for what cannot be said otherwise."""
    seed: int = 0
    num_matched: int = field(default=0, init=False)
    """Requests it could have happened to so far."""
    num_done: int = field(default=0, init=False)
    """Requests it happened to so far."""
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - repeatable, guards nothing

    def hits(self, method: str, target: str) -> bool:
        """Count a request and tell whether the fault happens to it."""
        if self.methods and method not in self.methods:
            return False
        if not fnmatchcase(unquote(urlsplit(target).path), self.path):
            return False
        if self.where is not None and not self.where(method, target):
            return False
        number = self.num_matched - self.skip
        self.num_matched += 1
        if number < 0 or (self.first is not None and number >= self.first):
            return False
        if self.every is not None and (number + 1) % self.every:
            return False
        if self.chance is not None and self._random.random() >= self.chance:
            return False
        self.num_done += 1
        return True


class Script:
    """The rules that hold now."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._rules: list[Rule] = []

    def set(self, rules: list[Rule]) -> None:
        """Let these hold from the next request on."""
        with self._guard:
            self._rules = rules

    def add(self, rule: Rule) -> None:
        """Let this one hold as well."""
        with self._guard:
            self._rules.append(rule)

    def faults(self, method: str, target: str) -> list[Fault]:
        """Return all faults of a request."""
        with self._guard:
            return [rule.fault for rule in self._rules if rule.hits(method, target)]
