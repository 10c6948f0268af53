"""How a hostile input is judged: the exact error, quickly, in little memory."""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING

from PIL import Image
from tests.core.format.mds.making import NAME

from streaming_core.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FLOOR", "judged"]

FLOOR = 256 << 10
"""Bytes that any call may take, for tracebacks and messages."""

Image.init()  # what Pillow imports for its first image is no image's fault


def judged(call: Callable[[], object], size: int) -> StreamingError:
    """Return the error of `call`, which met `size` hostile bytes, having checked what all share.

    It names the shard and a place in it, says so in few words, takes less than a second of the
    processor, and less than three times `size` was allocated on the way.
    """
    tracemalloc.start()
    start = time.thread_time()
    try:
        call()
    except StreamingError as error:
        seconds, peak = time.thread_time() - start, tracemalloc.get_traced_memory()[1]
        found = error
    else:
        msg = "a hostile input was accepted"
        raise AssertionError(msg)
    finally:
        tracemalloc.stop()
    assert seconds < 1
    assert peak < 3 * size + FLOOR
    assert NAME in str(found)
    assert len(str(found)) < 2000
    return found
