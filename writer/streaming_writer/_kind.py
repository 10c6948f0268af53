"""What a writer needs to know of a kind of shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._store import Buffer
    from streaming_writer._assembly import Body
    from streaming_writer._blocks import Block
    from streaming_writer._mds_rows import Rows

__all__ = ["ShardFile", "ShardKind"]


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One uncompressed file of a shard."""

    role: str
    """`data` or `meta`."""
    suffix: str
    """What follows the shard's number in the name, such as `.mds` or `.json.meta`."""
    buffers: Sequence[Buffer]
    """The bytes, in order."""


class ShardKind(Protocol):
    """How samples become records, and records the files of a shard."""

    @property
    def name(self) -> str:
        """The format's name in the index."""
        ...

    @property
    def base_bytes(self) -> int:
        """What an empty shard counts against the size limit."""
        ...

    @property
    def record_bytes(self) -> int:
        """What each record counts against the limit beyond its length."""
        ...

    @property
    def header_bytes(self) -> int:
        """Bytes of the data file that neither counts, for the hard limit of the offsets."""
        ...

    @property
    def roles(self) -> tuple[str, ...]:
        """The files of a shard in the index: `("data",)` or `("data", "meta")`."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings as the index holds them for every shard."""
        ...

    def rows(self, first: int) -> Rows:
        """Return an encoder of samples; `first` is the next sample's number."""
        ...

    def batch(self, columns: Any, first: int) -> Block | None:  # noqa: ANN401 - a mapping or Arrow table
        """Encode a batch of columns."""
        ...

    def record(self, sample: Mapping[str, Any]) -> bytes:
        """Encode one sample on its own."""
        ...

    def files(self, body: Body) -> list[ShardFile]:
        """Return the files of a shard whose records lie in `body`."""
        ...
