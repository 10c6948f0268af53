"""Both ends of the way of a batch: the worker's `Sender` and the trainer's `Receiver`."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from streaming_reader._transport._pack import pack, unpack
from streaming_reader._transport._slots import HEADER, Region, SlotFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["Counted", "Delivery", "Parcel", "Receiver", "Sender"]

_ALIGN = 64
_tokens = itertools.count(1)
_receivers: weakref.WeakValueDictionary[int, Receiver] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Counted:
    """A batch and its number of samples, where the batch itself does not tell."""

    batch: Any
    rows: int


@final
@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch as it reaches the trainer."""

    value: Any
    rows: int
    """Number of samples in it."""

    def pin_memory(self) -> Delivery:
        """Return the batch in page-locked memory; torch calls this where pinning was asked for."""
        from torch.utils.data._utils import pin_memory  # noqa: PLC0415 - torch is optional

        pin: Any = pin_memory
        return Delivery(pin.pin_memory(self.value), self.rows)


@final
class Parcel:
    """What goes through the queue for a batch; where it is read, it is a `Delivery`."""

    __slots__ = ("_contents",)

    def __init__(self, rows: int, body: bytes, spans: list[tuple[int, int]], place: _Place) -> None:
        """Name the `place` and, in there, the start and end of each buffer."""
        self._contents = (rows, body, spans, place)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, self._contents


@dataclass(frozen=True, slots=True)
class _InSlot:
    token: int
    slot: int
    size: int


# Or memory that torch moves, or none if there are no buffers.
_Place = _InSlot | Any | None


def _arrive(rows: int, body: bytes, spans: Sequence[tuple[int, int]], place: _Place) -> Delivery:
    if isinstance(place, _InSlot):
        receiver = _receivers.get(place.token)
        if receiver is None:
            msg = "a batch reached a process that did not start the worker which sent it"
            raise RuntimeError(msg)
        whole = receiver.lend(place.slot, place.size)
    else:
        whole = memoryview(b"") if place is None else memoryview(place.numpy())
    return Delivery(unpack(body, [whole[start:end] for start, end in spans]), rows)


@final
class Receiver:
    """The trainer's end; `workers` times `per_worker` slots come into being as they are used."""

    __slots__ = ("__weakref__", "_file", "_regions", "sender")

    def __init__(self, workers: int, per_worker: int) -> None:
        """Make the slots; raises `OSError` where the system gives no memory or file for them."""
        self._file = SlotFile(workers * per_worker)
        self._regions: list[Region | None] = [None] * self._file.count
        token = next(_tokens)
        _receivers[token] = self
        self.sender = Sender(self._file, token, per_worker)
        """The other end, to be handed to every worker process as it is started."""

    def lend(self, slot: int, size: int) -> memoryview:
        """Return the bytes of `slot`, of which `size` are in use, until the last view is gone."""
        region = self._regions[slot]
        if region is None or region.capacity < size:
            region = self._regions[slot] = self._file.map(slot, size - HEADER)
        return region.lend()

    def close(self) -> None:
        """Let go of the file and the slots; batches that were delivered stay whole."""
        self._regions = [None] * self._file.count
        self._file.close()


@final
class Sender:
    """A worker's end: inherited or sent when the process starts, then attached to one worker."""

    __slots__ = ("_file", "_first", "_pending", "_per_worker", "_regions", "_token")

    def __init__(self, file: SlotFile, token: int, per_worker: int) -> None:
        """Write to `file`; the receiver is known by `token`."""
        self._file = file
        self._token = token
        self._per_worker = per_worker
        self._first = 0
        self._regions: list[Region | None] = []
        self._pending: tuple[int, Region, int] | None = None

    def attach(self, worker: int) -> None:
        """Take the slots of `worker`, once, in its process."""
        if not self._regions:
            self._first = worker * self._per_worker
            self._regions = [None] * self._per_worker

    def send(self, payload: object, rows: int) -> Parcel:
        """Return what to put into the queue for a batch of `rows` samples.

        Arrays of at least some KB are copied into a free slot, unless `reserve` has put them
        there. Where none is free, or there is no memory, one block goes the way of a tensor.
        """
        body, buffers = pack(payload)
        pending, self._pending = self._pending, None
        if not buffers:
            if pending:
                pending[1].free()
            return Parcel(rows, body, [], None)
        start = pending[2] if pending else HEADER
        spans, size = _spans(buffers, start, pending[1] if pending else None)
        taken = self._grown(pending, size) if pending else self._take(size)
        if taken is None:
            spans, size = _spans(buffers, 0, None)
            block = _torch_block(size)
            _fill(memoryview(block.numpy()), buffers, spans)
            return Parcel(rows, body, spans, block)
        slot, region = taken
        _fill(region.view(), buffers, spans, where=pending[1] if pending else None)
        return Parcel(rows, body, spans, _InSlot(self._token, slot, size))

    def reserve(
        self, layout: Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
    ) -> dict[str, NDArray[Any]] | None:
        """Return uninitialised arrays of these types and shapes in a free slot, or `None`.

        What the next `send` has of them, or of tensors made from them, is not copied any more.
        After that `send` the arrays belong to the trainer: they must not be touched.
        """
        pending, self._pending = self._pending, None
        if pending:  # was never sent
            pending[1].free()
        kinds = {name: (np.dtype(kind), shape) for name, (kind, shape) in layout.items()}
        starts: dict[str, int] = {}
        size = HEADER
        for name, (kind, shape) in kinds.items():
            starts[name] = size
            size = _aligned(size + kind.itemsize * int(np.prod(shape, dtype=np.int64)))
        taken = self._take(size)
        if taken is None:
            return None
        slot, region = taken
        self._pending = (slot, region, size)
        whole = region.view()
        return {
            name: np.ndarray(shape, kind, buffer=whole, offset=starts[name])
            for name, (kind, shape) in kinds.items()
        }

    def _take(self, size: int) -> tuple[int, Region] | None:
        """Return a free slot with room for `size` bytes in all, now in use; does not wait."""
        free = [i for i, region in enumerate(self._regions) if region is None or region.is_free]
        if not free:
            return None
        # Of those that are large enough the first, so that no more memory is used than needed.
        fitting = (i for i in free if (r := self._regions[i]) is not None and r.capacity >= size)
        at = next(fitting, free[0])
        region = self._regions[at]
        if region is None or region.capacity < size:
            try:
                region = self._regions[at] = self._file.map(self._first + at, size - HEADER)
            except OSError:  # no memory for a slot: the batch has to find another way
                return None
        region.occupy()
        return self._first + at, region

    def _grown(self, pending: tuple[int, Region, int], size: int) -> tuple[int, Region] | None:
        """Return the reserved slot with room for `size` bytes in all; what is in it stays."""
        slot, region, _ = pending
        if region.capacity >= size:
            return slot, region
        try:
            region = self._regions[slot - self._first] = self._file.map(slot, size - HEADER)
        except OSError:
            pending[1].free()
            return None
        return slot, region


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _spans(
    buffers: Sequence[memoryview], start: int, reserved: Region | None
) -> tuple[list[tuple[int, int]], int]:
    """Return start and end of each buffer, and the end of all; those in `reserved` stay there."""
    spans: list[tuple[int, int]] = []
    base = _address(reserved.view()) if reserved else 0
    offset = start
    for buffer in buffers:
        inside = _address(buffer) - base if reserved else -1
        if reserved and HEADER <= inside <= start - buffer.nbytes:
            spans.append((inside, inside + buffer.nbytes))
            continue
        spans.append((offset, offset + buffer.nbytes))
        offset = _aligned(offset + buffer.nbytes)
    return spans, offset


def _fill(
    target: memoryview,
    buffers: Sequence[memoryview],
    spans: Sequence[tuple[int, int]],
    where: Region | None = None,
) -> None:
    """Copy the buffers to their places, except those that are in `where` already."""
    whole = np.frombuffer(target, np.uint8)  # copies of numpy let other threads run
    first, last = _bounds(where) if where else (0, 0)
    for buffer, (start, end) in zip(buffers, spans, strict=True):
        if where and first <= _address(buffer) < last:
            continue
        whole[start:end] = np.frombuffer(buffer, np.uint8)


def _bounds(region: Region) -> tuple[int, int]:
    first = _address(region.view())
    return first, first + region.capacity


def _address(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def _torch_block(size: int) -> Any:  # noqa: ANN401 - torch is optional, and has this one private
    import torch  # noqa: PLC0415 - only torch's workers send

    storages: Any = torch.UntypedStorage
    return torch.empty(0, dtype=torch.uint8).set_(storages._new_shared(size))  # noqa: SLF001 - shared from the start
