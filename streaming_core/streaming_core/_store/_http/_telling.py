"""What went wrong on the way, as the typed errors that all stores raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_core._store._http._gate import RefusedError
from streaming_core._store._http._wire import FAILURES, UntrustedError, WireError
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Telling", "raise_typed"]

_MISSING: Final = frozenset({404, 410})
_DENIED: Final = frozenset({401, 403, 407})
_NOT_ALLOWED: Final = 405
_BUSY: Final = frozenset({429, 503})
_EXISTS: Final = frozenset({409, 412})


class Telling:
    """Hands what is raised within to a function, which raises what it means.

    What the function returns from goes on as it was.
    """

    __slots__ = ("_key", "_operation", "_tell")

    def __init__(
        self, tell: Callable[[Exception, str, str], None], key: str, operation: str
    ) -> None:
        self._tell = tell
        self._key = key
        self._operation = operation

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._tell(error, self._key, self._operation)


def raise_typed(error: Exception, what: str, operation: str) -> None:
    """Raise the typed error that is said by a refusal or a failure of the line.

    Other errors are not for this, nor those that are typed already: it returns.
    """
    if isinstance(error, StreamingError):
        return
    if isinstance(error, RefusedError):
        raise _refused(error, what, operation) from None
    if isinstance(error, UntrustedError):
        msg = f"{what}: {error}"
        raise LastingError(msg) from error
    if isinstance(error, FAILURES):
        reason = str(error) or "no answer"
        kind = "" if isinstance(error, WireError) else f"{type(error).__name__}: "
        msg = f"{what}: {kind}{reason}"
        raise StoreError(msg) from error


def _refused(error: RefusedError, what: str, operation: str) -> StoreError:
    said = f"{what}: {error}"
    if error.status in _MISSING:
        return ObjectNotFoundError(
            f"{said}: there is no such object; check the key, and that its writer has finished"
        )
    if error.status in _DENIED:
        return AccessDeniedError(f"{said}; check the credentials and what they may do there")
    if error.status == _NOT_ALLOWED:
        return AccessDeniedError(f"{said}: the server does not take such requests there")
    if error.status in _EXISTS and operation == "put":
        return AlreadyExistsError(
            f"{said}: the object exists already and was left as it is; delete it first or put "
            "without if_absent"
        )
    if error.status in _BUSY:
        return StoreBusyError(said, retry_after=error.retry_after)
    return StoreError(said)
