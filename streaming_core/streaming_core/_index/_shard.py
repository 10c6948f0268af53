"""One shard as the index describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from streaming_core._index._schema import ShardSchema

__all__ = ["ROLES", "ROLE_KEYS", "FileInfo", "FileRole", "ShardInfo"]

FileRole: TypeAlias = Literal["raw", "zip", "raw_meta", "zip_meta"]
"""What a file is to its shard: the data or its meta file, plain or compressed."""

ROLES: Final[tuple[FileRole, ...]] = ("raw", "zip", "raw_meta", "zip_meta")
ROLE_KEYS: Final[dict[FileRole, str]] = {
    "raw": "raw_data",
    "zip": "zip_data",
    "raw_meta": "raw_meta",
    "zip_meta": "zip_meta",
}
"""The key under which the document keeps each role."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file of a shard: its name below the data set's folder, its size, its hashes."""

    basename: str
    """Safe relative name; has slashes in a merged data set."""
    bytes: int
    """Exact size."""
    hashes: dict[str, str]
    """Hex digest by the name of the hash; may be empty."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard: where it stands in the data set, what it holds, which files it has.

    A shard with compression has only its `zip` files in storage; `raw` then says what they
    decompress to.
    """

    index: int
    """Position in the data set, from 0."""
    samples: int
    """Number of samples; may be 0."""
    schema: ShardSchema
    """Format and columns."""
    raw: FileInfo
    """The data file, decompressed."""
    zip: FileInfo | None = None
    """The data file, compressed; None without compression."""
    raw_meta: FileInfo | None = None
    """The meta file, decompressed; None for `mds`."""
    zip_meta: FileInfo | None = None
    """The meta file, compressed."""

    def files(self) -> dict[FileRole, FileInfo]:
        """Return the files there are, by role.

        Example:
            >>> from streaming_core._index import ShardSchema
            >>> schema = ShardSchema("mds", (), ())
            >>> list(ShardInfo(0, 0, schema, FileInfo("shard.00000.mds", 8, {})).files())
            ['raw']
        """
        pairs: list[tuple[FileRole, FileInfo | None]] = [
            ("raw", self.raw),
            ("zip", self.zip),
            ("raw_meta", self.raw_meta),
            ("zip_meta", self.zip_meta),
        ]
        return {role: info for role, info in pairs if info is not None}
