"""Who takes the samples, where that decides which they have to be.

Some tools let one process read for all ranks, or let every process read all and keep a part. They
tell the data set nothing, and one that gave each rank its own part would lose the others' without
a word. Others go on in an epoch that has nothing left, and would take the next one for its rest. So
a data set looks who is asking: the code on the stack above it.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["SKIPPED", "Divider", "find_divider"]

SKIPPED: Final = (
    "batches that an earlier process has had are to be skipped, but nothing says of which epoch, "
    "and this data set would begin with the first. Load a state_dict instead, which goes there at "
    "once (with ignore_data_skip=True in the trainer of transformers), or call set_epoch before"
)
"""Why a `SKIPPER` is refused where nobody has said which epoch it is."""


class Divider(Enum):
    """What stands between the data set and the ranks."""

    BATCHES = "batches"
    """One process iterates, and hands batch after batch to rank after rank."""
    SAMPLES = "samples"
    """Each process iterates over everything and keeps its part of each global batch."""
    SKIPPER = "skipper"
    """Nothing is divided, but batches are skipped that an earlier process has had."""

    COUNTER = "counter"
    """Nothing is divided, but epochs are counted: what is left of one may be nothing."""

    @property
    def divides(self) -> bool:
        """Whether the samples of all ranks have to be given."""
        return self in {Divider.BATCHES, Divider.SAMPLES}


_KNOWN: Final = (
    ("accelerate.data_loader", "DataLoaderDispatcher", Divider.BATCHES),
    ("accelerate.data_loader", "IterableDatasetShard", Divider.SAMPLES),
    ("accelerate.data_loader", "SkipDataLoader", Divider.SKIPPER),
    ("transformers.trainer_pt_utils", "IterableDatasetShard", Divider.SAMPLES),
    ("composer.trainer.trainer", "Trainer", Divider.COUNTER),
)


def find_divider() -> Divider | None:
    """Return what asks for samples, or for their number, on behalf of this thread's caller.

    Imports nothing; costs nothing where none of the known tools is loaded. A forked worker has the
    stack it was forked on.

    Example:
        >>> find_divider() is None
        True
    """
    codes: dict[int, Divider] = {}
    for module, name, divider in _KNOWN:
        kind: Any = getattr(sys.modules.get(module), name, None)
        for method in ("__init__", "__iter__", "__len__", "fit"):
            code = getattr(getattr(kind, method, None), "__code__", None)
            if code is not None:
                codes[id(code)] = divider
    frame: FrameType | None = sys._getframe(1) if codes else None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        found = codes.get(id(frame.f_code))
        if found is not None:
            return found
        frame = frame.f_back
    return None
