"""Storage options on their way from the user to a store: secrets that stay in the process."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Self

from streaming_core.errors import AccessDeniedError, SchemaError

if TYPE_CHECKING:
    from streaming_core._store import StorageOptions

__all__ = ["KeptOptions"]


class KeptOptions:
    """Storage options that nobody sees who does not open a store with them.

    `repr` shows names at most. A pickle has the values only on the way to a worker process that
    `multiprocessing` is starting; in any other, asking for them is an error. A function travels as
    functions do.

    Example:
        >>> kept = KeptOptions({"token": "secret"})
        >>> kept, kept.get()["token"]
        (KeptOptions(token), 'secret')
    """

    __slots__ = ("_given", "_names")

    def __init__(self, given: StorageOptions) -> None:
        """Keep them; `SchemaError` if they are none."""
        came: object = given
        if not isinstance(came, Mapping) and not callable(came):
            msg = (
                "storage_options must be a mapping of names to values, or a function that returns "
                f"one; came {type(came).__name__}"
            )
            raise SchemaError(msg)
        self._given: StorageOptions | None = given
        self._names = ["function"] if callable(given) else sorted(given)

    @classmethod
    def of(cls, given: StorageOptions | None) -> Self | None:
        """Return the options kept, or None if there are none."""
        return None if given is None else cls(given)

    def get(self) -> StorageOptions:
        """Return them; `AccessDeniedError` if they stayed behind in another process."""
        if self._given is None:
            msg = (
                f"the storage options ({', '.join(self._names)}) are not in the pickle that this "
                "process was given, because they may be secret; give storage_options as a function "
                "that returns them, or set them in the environment"
            )
            raise AccessDeniedError(msg)
        return self._given

    def __repr__(self) -> str:
        return f"KeptOptions({', '.join(self._names)})"

    def __copy__(self) -> Self:
        """Return itself: a copy in this process is no secret told."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself, as `__copy__`."""
        return self

    def __getstate__(self) -> tuple[StorageOptions | None, list[str]]:
        """Leave the values out, unless they are a function or a worker process is being started."""
        travels = callable(self._given) or get_spawning_popen() is not None
        return self._given if travels else None, self._names

    def __setstate__(self, state: tuple[StorageOptions | None, list[str]]) -> None:
        self._given, self._names = state
