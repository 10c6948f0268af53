"""What Accelerate's own loaders do for a trainer, done for a loader that it leaves alone."""

# Accelerate is no dependency, and its annotations leave much unknown.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_reader._transport._torch import Tally

__all__ = ["placed"]

_END: Any = object()


def placed(loader: Any, batches: Any, tally: Tally) -> Iterator[Any]:  # noqa: ANN401 - duck-typed
    """Yield `batches` on the device of Accelerate's process, its gradient state kept.

    Reads one batch ahead, as the state says in the last batch that it is the last; `tally` counts
    those that were yielded. `loader` is what the state refers to meanwhile.
    """
    from accelerate.state import GradientState, PartialState  # noqa: PLC0415 - optional
    from accelerate.utils import send_to_device  # noqa: PLC0415 - optional

    gradients: Any = GradientState()
    process: Any = PartialState()
    loader.end_of_dataloader = False
    loader.remainder = -1  # no sample is there only to fill up a batch
    gradients._add_dataloader(loader)  # noqa: SLF001 - there is no other way
    try:
        following = next(batches, _END)
        while following is not _END:
            batch = send_to_device(following, process.device, non_blocking=loader.pin_memory)
            received = batches.tally.samples
            following = next(batches, _END)
            loader.end_of_dataloader = following is _END
            tally.samples = received
            tally.finished = loader.end_of_dataloader
            yield batch
    finally:
        gradients._remove_dataloader(loader)  # noqa: SLF001 - there is no other way
