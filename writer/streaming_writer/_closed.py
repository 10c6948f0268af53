"""What stands in for the encoder of a writer that takes no more."""

from __future__ import annotations

from streaming_core.errors import WriterStateError

__all__ = ["FINISHED", "FORKED", "STOPPED", "ClosedRows"]

FINISHED = "the writer is finished and takes no more; append=True adds to a data set"
STOPPED = "the writer has stopped without an index; resume=True goes on after what is safe"
FORKED = (
    "this writer was made in another process and its threads are not here; make one in each "
    "process with part=i, and join the parts with merge_index"
)


class ClosedRows:
    """Stands in for the encoder when nothing more is taken."""

    def __init__(self, reason: str, *, complete: bool) -> None:
        self.reason = reason
        self.complete = complete
        self.first = 0

    def add(self, sample: object) -> bool:  # noqa: ARG002 - as other rows take it
        raise WriterStateError(self.reason)

    def take(self) -> None:
        raise WriterStateError(self.reason)
