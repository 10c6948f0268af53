"""Scripted faults: what goes wrong, where, and at which call."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_core.errors import StoreError

__all__ = [
    "Action",
    "Call",
    "Delay",
    "Die",
    "Fault",
    "FlipBit",
    "Kill",
    "LoseResponse",
    "Raise",
    "Script",
    "Truncate",
    "Verb",
]

Verb: TypeAlias = Literal["get", "get_ranges", "stream", "head", "list", "put", "delete"]
"""The requests that a store makes; `child` makes none."""


@dataclass(frozen=True, slots=True, eq=False)
class Raise:
    """The call raises `error`; the inner store is not asked."""

    error: StoreError
    """What is raised, a new copy each time."""

    def __eq__(self, other: object) -> bool:
        # Errors compare by identity, which a pickled script would not survive.
        return self._value() == other._value() if isinstance(other, Raise) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self.error))

    def _value(self) -> tuple[type[StoreError], tuple[object, ...]]:
        return type(self.error), self.error.args


@dataclass(frozen=True, slots=True)
class Truncate:
    """The body ends early and without a word: what a read returns (each range), or a put stores."""

    num_bytes: int
    """Where it is cut; a shorter body stays whole."""


@dataclass(frozen=True, slots=True)
class FlipBit:
    """One bit of the body is wrong: of what a read returns (the first range), or a put stores."""

    bit: int = 0
    """Its number, modulo the body's bits; bit 0 is the lowest of the first byte. In a stream it is
    counted in the whole object, wherever the stream starts."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The call takes longer; `FaultStore.wake` ends the wait."""

    seconds: float
    """How long it waits before it does anything else."""


@dataclass(frozen=True, slots=True)
class Die:
    """The connection of a put or a stream breaks after `num_bytes`: it raises `StoreError`."""

    num_bytes: int
    """How much has been sent; more than the body means: all of it, but not the end mark."""
    leaves_partial: bool = False
    """Whether that much becomes visible under the key, as in stores that break the contract."""


@dataclass(frozen=True, slots=True)
class LoseResponse:
    """The inner store does all of it, but the call raises `StoreError`: the answer was lost."""


@dataclass(frozen=True, slots=True)
class Kill:
    """This process dies by SIGKILL, as a machine does."""

    after: bool = False
    """Whether the inner store does its work first."""


Action: TypeAlias = Raise | Truncate | FlipBit | Delay | Die | LoseResponse | Kill
"""What can go wrong."""

_BODY_VERBS = frozenset({"get", "get_ranges", "stream", "put", "*"})
_LONG_VERBS = frozenset({"put", "stream", "*"})


@dataclass(frozen=True, slots=True)
class Fault:
    """An action with the calls it happens at: those whose verb and key match, from `nth` on.

    Example:
        >>> Fault(Truncate(10), verb="get", key="shard.*", nth=2).times
        1
    """

    action: Action
    """What goes wrong."""
    verb: Verb | Literal["*"] = "*"
    """Which requests match; `*` for all."""
    key: str = "*"
    """Which keys match, as a shell pattern whose `*` also matches slashes; counted from the store
    that the faults were given to, also when a child is used. The key of `list` is its prefix."""
    nth: int = 1
    """The first matching call at which it happens, counted from 1."""
    times: int | None = 1
    """At how many matching calls in a row it happens; None for all that follow."""

    def __post_init__(self) -> None:
        """Refuse a script that could never run."""
        if self.nth < 1 or (self.times is not None and self.times < 1):
            msg = f"calls count from 1: wanted nth >= 1 and times >= 1 or None, got {self!r}"
            raise ValueError(msg)
        wanted: frozenset[str] | None = None
        if isinstance(self.action, (Truncate, FlipBit)):
            wanted = _BODY_VERBS
        elif isinstance(self.action, Die):
            wanted = _LONG_VERBS
        if wanted is not None and self.verb not in wanted:
            msg = (
                f"{type(self.action).__name__} cannot happen at {self.verb!r}; it can at "
                f"{', '.join(sorted(wanted))}"
            )
            raise ValueError(msg)

    def matches(self, call: Call) -> bool:
        """Tell whether `call` counts for this fault."""
        if isinstance(self.action, (Truncate, FlipBit)) and call.verb not in _BODY_VERBS:
            return False
        if isinstance(self.action, Die) and call.verb not in _LONG_VERBS:
            return False
        return self.verb in {"*", call.verb} and fnmatchcase(call.key, self.key)


class Call(NamedTuple):
    """One request that reached the store, whether or not it succeeded."""

    verb: Verb
    """What was asked."""
    key: str
    """For which key, or prefix."""


class Script:
    """Faults, and the calls counted so far; shared by a store and its children, thread-safe.

    Example:
        >>> script = Script([Fault(Delay(0.5), verb="get", nth=2)])
        >>> script.enter(Call("get", "a")), script.enter(Call("get", "a"))
        ((), (Delay(seconds=0.5),))
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        self.calls: list[Call] = []
        self._counts = [0] * len(self.faults)
        self._guard = threading.Lock()
        self.awake = threading.Event()

    def enter(self, call: Call) -> tuple[Action, ...]:
        """Record `call` and return what goes wrong with it."""
        actions: list[Action] = []
        with self._guard:
            self.calls.append(call)
            for number, fault in enumerate(self.faults):
                if fault.matches(call):
                    self._counts[number] += 1
                    since = self._counts[number] - fault.nth
                    if since >= 0 and (fault.times is None or since < fault.times):
                        actions.append(fault.action)
        return tuple(actions)

    def __getstate__(self) -> tuple[tuple[Fault, ...], list[Call], list[int]]:
        """Leave out what cannot travel: the copy counts on from here by itself."""
        with self._guard:
            return self.faults, list(self.calls), list(self._counts)

    def __setstate__(self, state: tuple[tuple[Fault, ...], list[Call], list[int]]) -> None:
        self.faults, self.calls, self._counts = state
        self._guard = threading.Lock()
        self.awake = threading.Event()
