"""Full shards to durable files, in threads: hash, compress, put, note in the journal."""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming_core._codec import digest, digests
from streaming_core._read import SUM_ALGORITHM
from streaming_core._workers import Task, Workers
from streaming_writer._assembly import Body, BodyPool
from streaming_writer._journal import ShardRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_writer._kind import ShardKind
    from streaming_writer._opening import Opening
    from streaming_writer._options import Options
    from streaming_writer._output import Output
    from streaming_writer._progress import Progress

__all__ = ["Finisher"]

_SECONDS_UNTIL_WARNING = 60.0
_log = logging.getLogger("streaming_core.writer")


class Finisher:
    """Finishes shards side by side; what it writes does not depend on the number of threads.

    At most `workers + 1` shards are in memory: whoever brings one more waits.
    """

    def __init__(
        self,
        kind: ShardKind,
        output: Output,
        options: Options,
        opening: Opening,
        *,
        progress: Progress,
    ) -> None:
        """Go on after the shards of `opening`."""
        self._kind = kind
        self._output = output
        self._options = options
        self._opening = opening
        self._progress = progress
        self._pool = BodyPool(options.workers() + 1, may_keep=options.codec() is None)
        self._workers = Workers(options.workers(), "streaming-writer")
        self._pending: list[Task[ShardRecord]] = []
        self._checked = 0

    def take(self) -> Body:
        """Return an empty body, waiting for a shard to be finished if all are in use."""
        while True:
            self.check()
            body = self._pool.take(timeout=_SECONDS_UNTIL_WARNING)
            if body is not None:
                return body
            self._warn("a shard to be stored, so that its memory can be used again")

    def _warn(self, what: str) -> None:
        where, seconds = self._output.stores[-1].url, _SECONDS_UNTIL_WARNING
        _log.warning("%s: waiting since %.0f seconds for %s", where, seconds, what)

    def submit(self, body: Body) -> None:
        """Take the body of the next shard and finish it in a thread."""
        number = self._opening.first_number + len(self._opening.done) + len(self._pending)
        self._pending.append(self._workers.submit(partial(self._finish, number, body)))

    def check(self) -> None:
        """Raise the first error that a thread met."""
        while self._checked < len(self._pending) and self._pending[self._checked].is_done:
            task = self._pending[self._checked]
            if not isinstance(task.error, CancelledError):
                task.result()
            self._checked += 1

    def records(self) -> list[ShardRecord]:
        """Wait for all shards and return them in order; raises what a thread met."""
        self.settle()
        return [*self._opening.done, *(task.result() for task in self._pending)]

    def settle(self) -> None:
        """Wait until all that was submitted is stored, or until something fails."""
        warn_at = time.monotonic() + _SECONDS_UNTIL_WARNING
        while not_done := [task for task in self._pending if not task.is_done]:
            if any(task.error for task in self._pending):
                return
            not_done[0].wait()
            if time.monotonic() > warn_at:
                warn_at += _SECONDS_UNTIL_WARNING
                self._warn(f"{len(not_done)} shards to be stored")

    def durable(self) -> list[ShardRecord]:
        """Return the unbroken run of shards that are durable by now."""
        found = list(self._opening.done)
        for task in self._pending:
            if not task.is_done or task.error:
                break
            found.append(task.result())
        return found

    def stop(self) -> None:
        """Drop what no thread has begun, and wait for the threads to end."""
        self._workers.stop()

    def _finish(self, number: int, body: Body) -> ShardRecord:
        try:
            record = self._store_shard(number, body)
        finally:
            self._pool.give(body)
        self._output.journal.record(number, record)
        self._progress.add_shard()
        return record

    def _store_shard(self, number: int, body: Body) -> ShardRecord:
        codec = self._options.codec()
        entry: dict[str, Any] = {**self._kind.config, "samples": body.count}
        sums: dict[str, str] = {}
        for role in self._kind.roles:
            entry[f"zip_{role}"] = None
        for file in self._kind.files(body):
            basename = f"shard.{number:05d}{file.suffix}"
            buffers = file.buffers
            entry[f"raw_{file.role}"] = self._info(basename, buffers)
            if codec:
                buffers = [codec.compress(buffers)]
                basename += f".{codec.extension}"
                entry[f"zip_{file.role}"] = self._info(basename, buffers)
            sums[basename] = digest(SUM_ALGORITHM, buffers)
            self._output.put(basename, buffers)
        return ShardRecord(entry, sums)

    def _info(self, basename: str, buffers: Any) -> Mapping[str, Any]:  # noqa: ANN401 - buffers
        size = sum(len(memoryview(buffer).cast("B")) for buffer in buffers)
        return {
            "basename": basename,
            "bytes": size,
            "hashes": digests(self._options.hash_names(), buffers),
        }
