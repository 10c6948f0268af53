"""Batches from worker processes to the trainer, in memory that has no name and is used again.

A worker has a few slots, parts of one anonymous file that all processes of an iteration map. It
writes a batch into a free slot and sends a `Parcel`, which says where; read from the queue, the
parcel is a `Delivery` whose arrays and tensors are views of the slot. When the last view is gone,
the slot is free again. A batch that finds no free slot travels as torch would send it.
"""

from __future__ import annotations

from streaming_reader._transport._channel import Counted, Delivery, Parcel, Receiver, Sender
from streaming_reader._transport._failure import Failure
from streaming_reader._transport._slots import SlotFile

__all__ = ["Counted", "Delivery", "Failure", "Parcel", "Receiver", "Sender", "SlotFile"]
