"""What all writers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from streaming_core._attributes import forget_assigned, open_to_subclasses
from streaming_core._shown import Shown
from streaming_writer._conversion import Conversion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from streaming_writer._conversion import KindFactory
    from streaming_writer._mds_rows import Sample
    from streaming_writer._options import Options
    from streaming_writer._output import Target

__all__ = ["Writer"]


@open_to_subclasses
class Writer(Shown):
    """Base of all writers. Any thread may call it, one at a time gets in; it cannot cross a fork.

    Use it in a `with` block: leaving the block normally finishes the data set, leaving it by an
    exception publishes no index and keeps what `resume=True` needs to go on.
    """

    _streaming_engine: Conversion

    def __init__(
        self,
        make_kind: KindFactory,
        columns: Mapping[str, str] | None,
        out: Target,
        options: Options,
    ) -> None:
        """Lock the output, look at what is there, and get ready to write."""
        forget_assigned(self)
        self._streaming_engine = Conversion(make_kind, columns, out, options)

    @property
    def local(self) -> Path | None:
        """The folder that is written to, or None if everything goes to a remote store."""
        return self._streaming_engine.output.local

    @property
    def num_safe_samples(self) -> int:
        """How many samples of this conversion, from its first on, are durable by now.

        After `resume=True`, skip that many of the source. It grows while shards are finished, so
        read it before the first `write`, or keep it as the point from which a later run goes on.
        """
        return self._streaming_engine.num_safe_samples

    def write(self, sample: Sample) -> None:
        """Write one sample: a mapping with a value for each column; other keys are left out.

        The value is encoded before this returns, so arrays may be reused. Raises `SampleError`
        saying what does not fit (nothing of the sample is kept, and the writer goes on), or what a
        thread met while it stored an earlier shard.
        """
        engine = self._streaming_engine
        with engine.lock:
            if engine.rows.add(sample):
                engine.drain()

    def write_batch(self, columns: Any) -> None:  # noqa: ANN401 - a mapping or any Arrow table
        """Write many samples given as columns: a mapping of arrays or lists, or an Arrow table.

        Gives the same files as `write` of each row. A batch with a value that does not fit raises
        `SampleError` and is left out whole. Each batch of an Arrow reader counts as one of its own,
        so that tables larger than memory can be written.
        """
        self._streaming_engine.write_batch(columns)

    def finish(self) -> None:
        """Store what is left, publish the index, and end. Once it returns, everything is durable.

        Raises what a thread met; then no index is published. Calling it again does nothing, but
        after an error it raises.
        """
        self._streaming_engine.finish()

    def cancel_future_jobs(self) -> None:
        """Stop without an index, dropping the shards that no thread has begun to store."""
        self._streaming_engine.cancel()

    def encode_sample(self, sample: Sample) -> bytes:
        """Return the record of a sample without writing it."""
        return self._streaming_engine.kind().record(sample)

    def get_config(self) -> dict[str, Any]:
        """Return the settings as the index holds them for each shard."""
        return dict(self._streaming_engine.kind().config)

    def _streaming_facts(self) -> dict[str, Any]:
        engine = self._streaming_engine
        out, safe = engine.output.first.url, engine.num_safe_samples
        return {"out": out, "safe_samples": safe, "state": engine.state}

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish, or, if the block raised, stop without an index."""
        engine = self._streaming_engine
        try:
            if kind is None:
                self.finish()
            engine.settle()
        finally:  # without effect if it has finished
            try:
                engine.abort()
            finally:
                engine.abort()  # the first may have been interrupted
