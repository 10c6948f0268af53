"""What a user says of a store beyond its URL: endpoints, credentials, ways of access."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, TypeAlias

from streaming_core.errors import AccessDeniedError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Options", "StorageOptions"]

StorageOptions: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""Names and values, or a function that returns them, which is called again when a store says that
the credentials have run out."""


class _Guard:
    """Lets one thread of a process ask at a time."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.lock = threading.Lock()


_guard = _Guard()
os.register_at_fork(after_in_child=_guard.start)


class Options:
    """The options of one store, checked; values that are secret stay in the process.

    A pickle has them only on the way to a worker process that `multiprocessing` is starting; in any
    other, such as one on a disk, only the names of secrets are left, and using one is an error. A
    function travels as functions do.

    Example:
        >>> options = Options({"endpoint_url": "http://127.0.0.1:9000"}, known={"endpoint_url"})
        >>> options.get("endpoint_url"), options
        ('http://127.0.0.1:9000', Options(endpoint_url))
    """

    __slots__ = ("_function", "_known", "_lost", "_secret", "_values", "renewals")

    def __init__(
        self,
        given: StorageOptions | None,
        *,
        known: Iterable[str],
        secret: Iterable[str] = (),
    ) -> None:
        """Take options of which the names are `known` or `secret`.

        Raises `SchemaError` for other names, or what are no options.
        """
        self._secret = frozenset(secret)
        self._known = frozenset(known) | self._secret
        self._lost: frozenset[str] = frozenset()
        self._function = given if callable(given) else None
        self._values: Mapping[str, Any] | None = None
        self.renewals = 0
        """How often other values were asked for; a request notes it before it reads values."""
        if not callable(given):
            self._values = self._checked({} if given is None else given)

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self._values or ()))})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is secret unless a worker process is being started."""
        state = {name: getattr(self, name) for name in self.__slots__}
        if self._function is not None:
            state |= {"_values": None, "renewals": 0}
        elif get_spawning_popen() is None:
            values = self._values or {}
            state["_lost"] = self._lost | (self._secret & values.keys())
            state["_values"] = {k: v for k, v in values.items() if k not in self._secret}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def get(self, name: str, *variables: str, default: Any = None) -> Any:  # noqa: ANN401 - of any type
        """Return an option; else the first of some environment variables that is set.

        Raises `AccessDeniedError` if it was secret and did not travel with a pickle.
        """
        if name in self._lost:
            msg = (
                f"the storage option {name!r} is not in the pickle that this process was given, "
                "because it is secret; give storage_options as a function that returns it, or set "
                "it in the environment"
            )
            raise AccessDeniedError(msg)
        self._load()
        value = (self._values or {}).get(name)
        if value is not None:
            return value
        found = (os.environ.get(variable) for variable in variables)
        return next((value for value in found if value), default)

    def together(self, *names: str) -> tuple[Any, ...]:
        """Return some options as they are at one moment, None for those that are not set.

        Raises as `get`.
        """
        if not self._lost.isdisjoint(names):
            self.get(next(name for name in names if name in self._lost))
        self._load()
        values = self._values or {}
        return tuple([values.get(name) for name in names])

    def _load(self) -> None:
        """Ask the function for the first time, which does not count as renewed."""
        if self._values is not None or self._function is None:
            return
        with _guard.lock:
            if self._values is None:
                self._values = self._checked(self._function())

    def renew(self, since: int) -> bool:
        """Ask the function for other values than those of a refused request.

        `since` is what `renewals` was when the request read its values. If another thread has asked
        since then, its values are used. Returns whether there are values to try.
        """
        if self._function is None:
            return False
        with _guard.lock:
            if self.renewals != since:
                return True
            before, self._values = self._values, self._checked(self._function())
            self.renewals += 1
            return self._values != before

    def _checked(self, given: Any) -> Mapping[str, Any]:  # noqa: ANN401 - whatever a user gave
        if not _is_mapping(given):
            msg = (
                "storage_options must be a mapping of names to values, or a function that returns "
                f"one; came {type(given).__name__}"
            )
            raise SchemaError(msg)
        unknown = sorted(str(name) for name in given if name not in self._known)
        if unknown:
            known = ", ".join(sorted(self._known)) or "none"
            msg = f"unknown storage option(s) {', '.join(map(repr, unknown))}; known are {known}"
            raise SchemaError(msg)
        return dict(given)


def _is_mapping(given: object) -> bool:
    return isinstance(given, Mapping)
