"""The engine of all writers: samples in, shards and index out, nothing lost on the way."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from streaming_core._arguments import unexpected
from streaming_core._index import dump_index
from streaming_core._read import SUMS, format_sums
from streaming_core._shown import Shown
from streaming_core._store import LocalStore, release_all
from streaming_core.errors import SchemaError, StreamingError, WriterStateError
from streaming_writer._arrow import as_table, infer_arrow, is_arrow
from streaming_writer._assembly import Assembly
from streaming_writer._closed import FINISHED, FORKED, STOPPED, ClosedRows
from streaming_writer._finisher import Finisher
from streaming_writer._infer import InferringRows, KnownKeysRows, infer_batch
from streaming_writer._opening import begin, check_finished, check_settings, prepare, sweep
from streaming_writer._output import INDEX, Output, Target, resolve_targets
from streaming_writer._progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from types import TracebackType

    from streaming_writer._journal import ShardRecord
    from streaming_writer._kind import ShardKind
    from streaming_writer._mds_rows import Rows, Sample
    from streaming_writer._options import Options

__all__ = ["KindFactory", "Writer"]

_log = logging.getLogger("streaming_core.writer")
AnyRows: TypeAlias = "Rows | InferringRows | KnownKeysRows | ClosedRows"
KindFactory: TypeAlias = "Callable[[Mapping[str, str], Options], ShardKind]"


@dataclass(frozen=True, slots=True)
class _Run:
    """What exists once the columns are known."""

    kind: ShardKind
    assembly: Assembly
    finisher: Finisher


_in_child: set[weakref.WeakMethod[Callable[[], None]]] = set()
"""For each writer, what makes the copy of it in a forked child refuse everything."""


def _disown_all() -> None:
    for disown in [method() for method in _in_child]:
        if disown is not None:
            disown()


os.register_at_fork(after_in_child=_disown_all)


class Writer(Shown):
    """Base of all writers. Any thread may call it, one at a time gets in; it cannot cross a fork.

    Use it in a `with` block: leaving the block normally finishes the data set, leaving it by an
    exception publishes no index and keeps what `resume=True` needs to go on.

    One writer at a time may write to a place. A folder is locked. At a URL, of those that begin at
    once one goes on, and who is displaced by `exist_ok`, `resume` or `append` gets
    `OutputBusyError`; only in the last moment before a put, and at the beginning where the store
    cannot create only, may two still meet.
    """

    def __init__(
        self,
        make_kind: KindFactory,
        columns: Mapping[str, str] | None,
        out: Target,
        options: Options,
    ) -> None:
        """Lock the output, look at what is there, and get ready to write."""
        self._make_kind = make_kind
        self._options = options
        self._lock = threading.RLock()
        if columns is not None:
            if not isinstance(cast("object", columns), Mapping):
                raise unexpected(columns, "columns", "a mapping of names to encodings")
            make_kind(columns, options)  # refuse bad columns before anything is deleted or locked
        stores = resolve_targets(
            out,
            keep_local=options.keep_local,
            part=options.part,
            storage_options=options.storage_options,
        )
        self._output = Output(stores, retry=options.retry)
        self._progress = Progress(shown=options.progress_bar, label=str(stores[-1].url))
        self._open, self._published = True, False
        self._run: _Run | None = None
        self._rows: AnyRows = InferringRows()
        folders = [store for store in stores if isinstance(store, LocalStore)]
        self._folders = [store.lock() for store in folders]
        try:
            for store, lock in zip(folders, self._folders, strict=True):
                lock.acquire()
                sweep(store)
            self._opening = prepare(self._output, options.mode())
            if columns is None:
                columns = self._opening.columns
            if columns is not None:
                self._begin(columns)
            elif self._opening.finished:
                self._rows = ClosedRows(self._finished_reason(), complete=True)
            else:
                begin(self._output, self._opening, None)
            _in_child.add(weakref.WeakMethod(self._disown, _in_child.discard))
            if self.num_safe_samples:
                _log.info("%s: going on after %d samples", stores[0].url, self.num_safe_samples)
        except BaseException:
            release_all(self._folders)
            raise

    # --- the face ---------------------------------------------------------------------------------

    @property
    def local(self) -> Path | None:
        """The folder that is written to, or None if everything goes to a remote store."""
        return self._output.local

    @property
    def num_safe_samples(self) -> int:
        """How many samples of this conversion, from its first on, are durable by now.

        After `resume=True`, skip that many of the source. It grows while shards are finished, so
        read it before the first `write`, or keep it as the point from which a later run goes on.
        """
        if self._opening.finished:
            return self._opening.finished.samples
        done = self._run.finisher.durable() if self._run else self._opening.done
        return sum(record.samples for record in done)

    def write(self, sample: Sample) -> None:
        """Write one sample: a mapping with a value for each column; other keys are left out.

        The value is encoded before this returns, so arrays may be reused. Raises `SampleError`
        saying what does not fit (nothing of the sample is kept, and the writer goes on), or what a
        thread met while it stored an earlier shard.
        """
        with self._lock:
            if self._rows.add(sample):
                self._drain()

    def write_batch(self, columns: Any) -> None:  # noqa: ANN401 - a mapping or any Arrow table
        """Write many samples given as columns: a mapping of arrays or lists, or an Arrow table.

        Gives the same files as `write` of each row. A batch with a value that does not fit raises
        `SampleError` and is left out whole. Each batch of an Arrow reader counts as one of its own,
        so that tables larger than memory can be written.
        """
        with self._lock:
            if hasattr(columns, "read_next_batch"):
                for batch in columns:
                    self._write_batch(as_table(batch))
            else:
                self._write_batch(as_table(columns) if is_arrow(columns) else columns)

    def _write_batch(self, columns: Any) -> None:  # noqa: ANN401 - a mapping or an Arrow table
        if isinstance(self._rows, InferringRows) and not self._rows.samples:
            self._begin(infer_arrow(columns) if is_arrow(columns) else infer_batch(columns))
        run = self._drained()
        block = run.kind.batch(columns, self._rows.first)
        if block is not None:
            with self._whole():
                run.assembly.add(block)
                self._rows.first += len(block.lengths)
            self._progress.add(samples=len(block.lengths), size=int(block.lengths.sum()))

    def finish(self) -> None:
        """Store what is left, publish the index, and end. Once it returns, everything is durable.

        Raises what a thread met; then no index is published. Calling it again does nothing, but
        after an error it raises.
        """
        with self._lock:
            try:
                if not isinstance(self._rows, ClosedRows):
                    self._finish()
                elif not self._rows.complete:
                    raise WriterStateError(self._rows.reason)  # noqa: TRY301 - as any other error
                self._close(FINISHED, complete=True)
            except BaseException:
                self._abort()
                raise

    def cancel_future_jobs(self) -> None:
        """Stop without an index, dropping the shards that no thread has begun to store."""
        self._output.give_up()  # before the lock: who holds it may be waiting for a store
        with self._lock:
            self._abort()

    def encode_sample(self, sample: Sample) -> bytes:
        """Return the record of a sample without writing it."""
        return self._known_kind().record(sample)

    def get_config(self) -> dict[str, Any]:
        """Return the settings as the index holds them for each shard."""
        return dict(self._known_kind().config)

    def _streaming_facts(self) -> dict[str, Any]:
        state = "open" if self._open else "finished" if self._published else "stopped"
        safe = self.num_safe_samples
        return {"out": self._output.first.url, "safe_samples": safe, "state": state}

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
        try:
            if kind is None:
                self.finish()
            with self._lock:
                # Shards that are full are whole whatever the block raised: let them become safe.
                if self._open and self._run:
                    with contextlib.suppress(StreamingError, OSError):
                        self._drain()
                    self._run.finisher.settle()
        finally:  # without effect if it has finished
            try:
                self._abort()
            finally:
                self._abort()  # the first may have been interrupted

    # --- within -----------------------------------------------------------------------------------

    def _begin(self, columns: Mapping[str, str], *, inferred: bool = False) -> None:
        """Get ready for samples of these columns."""
        kind = self._make_kind(columns, self._options)
        opening, where = self._opening, self._output.first.url
        if opening.finished:
            check_finished(opening.finished.table, kind.config, where)
            self._rows = ClosedRows(self._finished_reason(), complete=True)
            return
        settings = {**kind.config, "columns": dict(columns)}
        if opening.settings and opening.done:
            check_settings(opening.settings, settings, where)
        if opening.base:
            check_finished(opening.base.table, kind.config, where)
            settings["base"] = opening.base.identity()
        begin(self._output, opening, settings)
        finisher = Finisher(kind, self._output, self._options, opening, progress=self._progress)
        fresh = not opening.done and not opening.base
        assembly = Assembly(
            self._options.cut_rule(kind), take=finisher.take, full=finisher.submit, fresh=fresh
        )
        self._run = _Run(kind, assembly, finisher)
        encoder = kind.rows(sum(record.samples for record in opening.done))
        self._rows = KnownKeysRows(encoder, columns) if inferred else encoder

    def _drain(self) -> None:
        """Move the encoded samples into shards."""
        if isinstance(self._rows, InferringRows):
            self._settle(self._rows)
            return
        with self._whole():
            block = self._rows.take()
            if block is None or self._run is None:
                return
            self._run.finisher.check()
            self._run.assembly.add(block)
        self._progress.add(samples=len(block.lengths), size=int(block.lengths.sum()))

    @contextlib.contextmanager
    def _whole(self) -> Generator[None]:
        """Take no more if the block, which moves samples on, is left half-way.

        Otherwise a caller who catches the error, or an interrupt, could finish without them.
        """
        try:
            yield
        except BaseException:
            if not isinstance(self._rows, ClosedRows):
                self._rows = ClosedRows(STOPPED, complete=False)
            raise

    def _disown(self) -> None:
        """Refuse everything, in a forked child, without touching what the parent uses."""
        if self._open:
            self._open = False
            self._lock = threading.RLock()  # a thread that is not here may have held it
            self._run = None
            self._rows = ClosedRows(FORKED, complete=False)

    def _drained(self) -> _Run:
        self._drain()
        if self._run is None:
            msg = "no columns are known yet"
            raise WriterStateError(msg)
        return self._run

    def _settle(self, rows: InferringRows) -> None:
        """Settle the columns by the first samples, and write these."""
        samples = rows.samples
        with self._whole():
            self._begin(rows.columns, inferred=True)
            for sample in samples:
                self.write(sample)
            self._drain()

    def _finish(self) -> None:
        if isinstance(self._rows, InferringRows):
            if self._rows.samples:
                self._settle(self._rows)
        else:
            self._drain()
        records: list[ShardRecord] = []
        if self._run is not None:
            if self._run.assembly.num_open:
                self._run.assembly.close()
            records = self._run.finisher.records()
        self._publish(records)

    def _publish(self, records: Sequence[ShardRecord]) -> None:
        base = self._opening.base
        entries = [*(base.table.entries() if base else ()), *(record.entry for record in records)]
        sums = dict(base.sums) if base else {}
        files: dict[str, int] = {}
        for record in records:
            sums.update(record.sums)
            files.update(record.files())
        extras = base.table.extras if base else None
        self._output.ownership.check()
        self._output.check(files, prefix="shard.")
        if sums and (self._options.checksums or (base and base.sums)):
            self._output.put(SUMS, [format_sums(sums)])
        index = dump_index(entries, extras=extras)
        self._output.conclude(INDEX, [index])
        self._published = True
        self._output.end_published(INDEX, index)

    def _abort(self) -> None:
        """Stop without an index; what is durable stays for `resume=True`."""
        if not self._open:
            return
        self._output.give_up()
        if self._run:
            self._run.finisher.stop()
        rows = self._rows
        if isinstance(rows, ClosedRows) and rows.complete:
            self._close(rows.reason, complete=True)
            return
        if self._published:
            told = "the data set is complete; resume=True removes its journal if it is still there"
        else:
            told = (
                f"stopped without an index; {self.num_safe_samples} samples are safe, resume=True "
                "goes on after them"
            )
        _log.warning("%s: %s", self._output.first.url, told)
        self._close(STOPPED, complete=False)

    def _close(self, reason: str, *, complete: bool) -> None:
        """End the threads, then give the locks back."""
        try:
            self._let_go()
        finally:  # the first may have been interrupted
            self._let_go()
            self._open = False
            self._rows = ClosedRows(reason, complete=complete)
        self._progress.close()

    def _let_go(self) -> None:
        if self._run:
            self._run.finisher.stop()
        release_all(self._folders)

    def _finished_reason(self) -> str:
        samples = self._opening.finished.samples if self._opening.finished else 0
        return (
            f"{self._output.first.url}: the conversion to resume is finished, with {samples} "
            "samples, and takes no more; skip the first num_safe_samples, or add others with "
            "append=True"
        )

    def _known_kind(self) -> ShardKind:
        if self._run is None:
            msg = "the columns are not known: give columns, or write some samples first"
            raise SchemaError(msg)
        return self._run.kind
