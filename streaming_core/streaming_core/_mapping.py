"""Files mapped into memory, and whether all of them is still there."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["is_cut", "map_whole"]


def map_whole(descriptor: int) -> memoryview:
    """Return the bytes of an open file, which may be closed afterwards; not of an empty one."""
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))


def is_cut(data: memoryview | bytes | NDArray[np.generic]) -> bool:
    """Tell whether the file behind a view that `map_whole` made became shorter since.

    Reading a page that was cut off ends the process, and no error can be raised then.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     end = file.truncate(10)
        ...     view = map_whole(file.fileno())
        ...     before, end = is_cut(view[:4]), file.truncate(3)
        ...     before, is_cut(view[:4])
        (False, True)
    """
    owner: Any = data
    while not isinstance(owner, mmap.mmap):
        # a memoryview names what holds its bytes `obj`, an array names it `base`
        owner = getattr(owner, "obj" if type(owner) is memoryview else "base", None)
        if owner is None:
            return False
    return owner.size() < len(owner)
