"""The files of one role, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec
import numpy as np

from streaming_core._index._packed import PackedStrings
from streaming_core._index._shard import FileInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["ABSENT", "FileColumn"]

ABSENT: Final = np.int64(-1)
"""The size of a file that is not there."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FileColumn:  # noqa: PLW1641 - not hashable: equality is by content
    """The files of one role, over all shards."""

    sizes: NDArray[np.int64]
    """Bytes of each file, -1 where a shard has none in this role."""
    basenames: PackedStrings
    """Names, empty where there is no file."""
    hashes: PackedStrings | None
    """Each file's hashes as a JSON object, empty without any; None if no file has any."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        hashes = 0 if self.hashes is None else self.hashes.nbytes
        return self.sizes.nbytes + self.basenames.nbytes + hashes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileColumn):
            return NotImplemented
        return (
            np.array_equal(self.sizes, other.sizes)
            and self.basenames == other.basenames
            and self.hashes == other.hashes
        )

    def __getitem__(self, index: int) -> FileInfo | None:
        """Return one file, None where there is none."""
        if self.sizes[index] < 0:
            return None
        text = "" if self.hashes is None else self.hashes[index]
        hashes = msgspec.json.decode(text, type=dict[str, str]) if text else {}
        return FileInfo(self.basenames[index], int(self.sizes[index]), hashes)

    @staticmethod
    def concatenate(parts: Sequence[tuple[FileColumn | None, int]]) -> FileColumn:
        """Return the columns one after the other; each comes with its length, for None needs it."""
        sizes: list[NDArray[np.int64]] = []
        names: list[PackedStrings] = []
        hashes: list[PackedStrings] = []
        for column, length in parts:
            empty = PackedStrings.empty(length)
            sizes.append(np.full(length, ABSENT) if column is None else column.sizes)
            names.append(empty if column is None else column.basenames)
            hashes.append(empty if column is None or column.hashes is None else column.hashes)
        packed = PackedStrings.concatenate(hashes)
        return FileColumn(
            np.concatenate(sizes),
            PackedStrings.concatenate(names),
            packed if packed.max_text_bytes else None,
        )
