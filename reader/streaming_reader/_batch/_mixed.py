"""A batch whose samples have different columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._columns import Columns

__all__ = ["Batch", "Mixed"]

Batch: TypeAlias = "Columns | Mixed"
"""Samples of one batch, in columns where they have the same ones."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """Samples of several columns: what there is instead of `Columns`. Only rows can be made of it.

    Example:
        >>> Mixed([{"a": 1}, {"b": 2}]).rows()
        [{'a': 1}, {'b': 2}]
    """

    samples: list[dict[str, Any]]
    """The samples, in order."""

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, which are not known."""
        return 0

    def lend(self) -> Mixed:
        """Return the samples as they are; their values are their own."""
        return self

    def rows(self) -> list[dict[str, Any]]:
        """Return the samples."""
        return self.samples

    def refusal(self, format: str) -> SchemaError:
        """Return the error that says why this batch does not come in `format`."""
        names = self.samples[0].keys()
        other = next(i for i, sample in enumerate(self.samples) if sample.keys() != names)
        msg = (
            f"sample {other} of a batch of {len(self)} has the columns "
            f"{sorted(self.samples[other])}, the first has {sorted(names)}; only samples of the "
            f"same columns can form a batch of the format {format!r}. Take batch_format='rows', or "
            "batching_method='per_stream' where the streams differ"
        )
        return SchemaError(msg)
