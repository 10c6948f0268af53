"""An Arrow file of one record batch, mapped, whose columns are arrays without a copy."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._extras import require
from streaming_core._foreign import Foreign
from streaming_core._format._arrow._types import Plain, plain_of
from streaming_core._format._arrow._varying import Varying, varying_of
from streaming_core._format._shard import Shard
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._index import ShardInfo
    from streaming_core._store import Buffer

__all__ = ["ArrowShard", "open_arrow_shard"]

_NO_OFFSETS = np.zeros(1, np.uint32)


class ArrowShard(Shard):
    """The rows of one Arrow file that was made here, with a single record batch in it."""

    def __init__(self, info: ShardInfo, data: Buffer) -> None:
        """Map `data`; raises `ShardCorruptError` if it is no such file, or not of these columns."""
        super().__init__(info.raw.basename, memoryview(data), _NO_OFFSETS)
        self._count = info.samples
        self.batch = self._opened(info)
        """All rows, a `pyarrow.RecordBatch` that lies in the file."""

    def _opened(self, info: ShardInfo) -> Any:  # noqa: ANN401 - of an optional dependency
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        ipc = require("pyarrow.ipc", extra="parquet", purpose="data that is not MDS")
        try:
            file = ipc.open_file(arrow.py_buffer(self._data))
            if file.num_record_batches != 1:
                msg = f"{file.num_record_batches} record batches where 1 was written"
                raise self._broken(msg)
            batch = file.get_batch(0)
        except arrow.ArrowException as error:
            raise self._broken(error) from error
        names = tuple(batch.schema.names)
        if batch.num_rows != info.samples or names != info.schema.column_names:
            wanted = f"{info.samples} of {info.schema.column_names}"
            msg = f"{batch.num_rows} rows of {names}, the index says {wanted}"
            raise self._broken(msg)
        return batch

    def _broken(self, error: object) -> ShardCorruptError:
        return ShardCorruptError(
            f"{self._name}: the decoded copy is no file that was made here: {error!s:.300}; "
            "it is made again"
        )

    @cached_property
    def columns(self) -> dict[str, Plain | Varying | None]:
        """Columns as they lie in the file; None for those that only Arrow can read."""
        arrays = zip(self.batch.schema.names, self.batch.columns, strict=True)
        return {name: plain_of(array) or varying_of(array) for name, array in arrays}

    @cached_property
    def kind(self) -> bytes:
        """Names and types of the columns: files with the same ones can be gathered together."""
        return bytes(self.batch.schema.serialize())

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        names: list[str] = self.batch.schema.names
        return names

    def _decode(self, row: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for at, (name, block) in enumerate(self.columns.items()):
            if block is not None:
                sample[name] = block.value(row)
            else:
                sample[name] = Foreign(self.batch.column(at).slice(row, 1)).to_list()[0]
        return sample

    def record(self, row: int) -> bytes:
        """Return the row as an Arrow stream of its own."""
        if not 0 <= row < self._count:
            raise self.no_row(row)
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self.batch.schema) as writer:
            writer.write_batch(self.batch.slice(row, 1))
        return bytes(sink.getvalue())

    def corrupt(self, row: int, error: object) -> ShardCorruptError:
        """Return the error that says with `error` what is wrong with a row."""
        return ShardCorruptError(f"{self._name}: row {row}: {error}")


def open_arrow_shard(info: ShardInfo, data: Buffer) -> ArrowShard:
    """Return the rows in `data`, a file that was decoded for the shard `info`."""
    return ArrowShard(info, data)
