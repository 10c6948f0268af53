"""Values that a file of this machine holds too: sent to a starting worker as the file's name."""

from __future__ import annotations

import mmap
import os
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Filed", "digest_of"]


class Filed(NamedTuple):
    """Where a value is kept, and how it is loaded. Pickles.

    The file's content never changes: another value is another file.
    """

    path: str
    digest: str
    """The hash of its bytes."""
    load: Callable[[Filed], Any]
    """Returns the value; a function that pickles."""

    def is_to_be_named(self) -> bool:
        """Tell whether a pickle that is made now need not hold the value.

        It need not if a worker of this machine is being started, and the file is still there.
        """
        return get_spawning_popen() is not None and os.path.exists(self.path)  # noqa: PTH110 - as text

    def mapped(self) -> memoryview:
        """Return the bytes, mapped; `IndexInvalidError` if they are others than they should be."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - as text
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            problem = Problem("$", f"cannot be read: {error}", "value")
            raise IndexInvalidError(self.path, (problem,)) from error
        if digest_of(data) != self.digest:
            problem = Problem("$", "has other bytes than when it was written", "value")
            raise IndexInvalidError(self.path, (problem,))
        return data


def digest_of(data: bytes | memoryview) -> str:
    """Return the hash of some bytes."""
    return xxhash.xxh3_128_hexdigest(data)
