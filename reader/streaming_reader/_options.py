"""Storage options and URLs on their way from the user to a store: secrets stay in the process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final, Self

from streaming_core._arguments import unexpected
from streaming_core._store import public_url
from streaming_core.errors import AccessDeniedError

if TYPE_CHECKING:
    from streaming_core._store import StorageOptions

__all__ = ["KeptOptions", "KeptUrl"]

_SECRET: Final = re.compile(
    r"https?:/+[^/]*@"  # whatever it is, it goes with the requests
    r"|https?:.*\?"
    r"|[a-z][a-z0-9+.-]+:/+[^/@]*:[^/]*@"  # a user alone is none, nor a bucket or container
    r"|[a-z][a-z0-9+.-]+:/.*\?[a-z_][\w.-]*=",  # no pattern of names
    re.IGNORECASE | re.ASCII | re.DOTALL,
)


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
            wanted = "a mapping of names to values, or a function that returns one"
            raise unexpected(type(came), "storage_options", wanted)  # maybe a secret
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


class KeptUrl(str):
    """A URL with user, password or query, which nobody sees who does not open a store with it.

    `repr` shows the rest. A pickle has all of it only on the way to a worker process that
    `multiprocessing` is starting; in any other, asking for it is an error, as for `KeptOptions`.

    Example:
        >>> KeptUrl.of("https://me:secret@example.org/data?token=1")
        'https://example.org/data'
        >>> KeptUrl.of("https://me:secret@example.org/data") == "https://me:secret@example.org/data"
        True
    """

    __slots__ = ("_is_lost",)

    _is_lost: bool

    @classmethod
    def of(cls, url: str) -> str:
        """Return a URL so that what may be secret in it is kept; others, and paths, as they are."""
        if isinstance(url, cls) or _SECRET.match(url) is None:
            return url
        kept = cls(url)
        kept._is_lost = False
        return kept

    @classmethod
    def remains(cls, url: str) -> Self:
        """Return what is left of a URL in a pickle."""
        lost = cls(url)
        lost._is_lost = True
        return lost

    @staticmethod
    def whole(url: str) -> str:
        """Return a URL that is all there; `AccessDeniedError` if some stayed behind."""
        if isinstance(url, KeptUrl) and url._is_lost:  # noqa: SLF001 - our own
            msg = (
                f"user, password and query of {public_url(url)} are not in the pickle that this "
                "process was given, because they may be secret; give the URL without them, and "
                "them as storage_options, as a function that returns them or in the environment"
            )
            raise AccessDeniedError(msg)
        return url

    def __repr__(self) -> str:
        return repr(public_url(self))

    def __copy__(self) -> Self:
        """Return itself: a copy in this process is no secret told."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself, as `__copy__`."""
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as `object` has it
        """Leave secrets out, unless a worker process is being started."""
        del protocol
        if get_spawning_popen() is None and not self._is_lost:
            return KeptUrl.remains, (public_url(self),)
        return (KeptUrl.remains if self._is_lost else KeptUrl.of), (str(self),)
