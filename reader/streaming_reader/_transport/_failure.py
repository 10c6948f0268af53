"""An error of a worker on its way to the trainer, with its type and attributes."""

from __future__ import annotations

import pickle
import traceback
from typing import NoReturn, final

__all__ = ["Failure"]


@final
class Failure:
    """What a worker sends instead of a batch when something went wrong.

    torch rebuilds an error from its message alone, which loses attributes and turns every error
    with another constructor into a `RuntimeError`.
    """

    __slots__ = ("_pickled", "_where")

    def __init__(self, error: Exception, where: str) -> None:
        """Keep `error`, which happened in `where`; one that cannot be pickled becomes its text."""
        self._where = f"{where}:\n{''.join(traceback.format_exception(error))}".rstrip()
        self._pickled = _pickled(error) or pickle.dumps(
            RuntimeError(f"{type(error).__name__}: {error}")
        )

    def error(self) -> Exception:
        """Return the error, noting where it happened and the trace there."""
        error: Exception = pickle.loads(self._pickled)  # noqa: S301 - from our own worker
        error.add_note(self._where)
        return error

    def reraise(self) -> NoReturn:
        """Raise the error."""
        raise self.error()


def _pickled(error: Exception) -> bytes | None:
    if isinstance(error, StopIteration):  # would end the trainer's loop as if all was well
        return None
    try:
        pickled = pickle.dumps(error)
        returned = pickle.loads(pickled)  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - pickling runs code of the error's class
        return None
    return pickled if type(returned) is type(error) else None
