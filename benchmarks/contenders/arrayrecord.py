"""array_record's writer, given the bytes of each sample as a user would pack them.

Option `group_size`: how many records form one compressed and separately readable group.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from _work import make_work
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]

_pack_pair = struct.Struct("<qq").pack

# Each format's cheapest way from a sample to bytes; packing is part of writing.
_PACKERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "ints": lambda sample: _pack_pair(sample["x"], sample["y"]),
    "tokens": lambda sample: sample["tokens"].tobytes(),
    "blobs": lambda sample: sample["data"],
}


class _ArrayRecord:
    distributions: tuple[str, ...] = ("array_record", "numpy")

    def __init__(self, work: Work, task: Task, group_size: int) -> None:
        self.payload_bytes = work.payload_bytes
        self._work = work
        self._pack = _PACKERS[task.work]
        self._options = f"group_size:{group_size},{task.compression or 'uncompressed'}"

    def run(self, out: Path) -> None:
        out.mkdir()
        writer = ArrayRecordWriter(str(out / "data.array_record"), self._options)
        pack = self._pack
        for sample in self._work.samples():
            writer.write(pack(sample))
        writer.close()

    def count(self, out: Path) -> int:
        reader = ArrayRecordReader(str(out / "data.array_record"))
        try:
            return int(reader.num_records())
        finally:
            reader.close()


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Make the data for a writer with groups of `options["group_size"]`."""
    return _ArrayRecord(make_work(task), task, options["group_size"])
