"""Values that a file of this machine holds too: sent to a starting worker as the file's name."""

from __future__ import annotations

import os
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from streaming_core._mapping import is_cut, map_whole
from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Filed", "digest_of", "uncut"]


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
                data = map_whole(file.fileno())
        except (OSError, ValueError) as error:
            raise _wrong(self.path, f"cannot be read: {error}") from error
        if digest_of(data) != self.digest:
            raise _wrong(self.path, "has other bytes than when it was written")
        return data


def uncut(view: memoryview | bytes, filed: Filed | None) -> memoryview | bytes:
    """Return a view of what `filed` mapped, if any; `IndexInvalidError` if the file was cut since.

    Reading what was cut off would end the process.
    """
    if filed is not None and is_cut(view):
        raise _wrong(
            filed.path,
            "was cut while it was in use; leave the files of a cache alone, and open the data set "
            "again",
        )
    return view


def digest_of(data: bytes | memoryview) -> str:
    """Return the hash of some bytes."""
    return xxhash.xxh3_128_hexdigest(data)


def _wrong(path: str, how: str) -> IndexInvalidError:
    return IndexInvalidError(path, (Problem("$", how, "value"),))
