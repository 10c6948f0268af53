"""What is behind every writer: samples in, shards and index out, nothing lost on the way."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from streaming_core._arguments import unexpected
from streaming_core._index import dump_index
from streaming_core._read import SUMS, format_sums
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

    from streaming_writer._journal import ShardRecord
    from streaming_writer._kind import ShardKind
    from streaming_writer._mds_rows import Rows
    from streaming_writer._options import Options

__all__ = ["Conversion", "KindFactory"]

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


class Conversion:
    """The work of one writer. Any thread may call it, one at a time gets in.

    It cannot cross a fork. One conversion at a time may write to a place. A folder is locked. At a
    URL, of those that begin at once one goes on, and who is displaced by `exist_ok`, `resume` or
    `append` gets `OutputBusyError`; only in the last moment before a put, and at the beginning
    where the store cannot create only, may two still meet.
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
        self.options = options
        self.given = {"hashes": options.hashes, "size_limit": options.size_limit}
        self.lock = threading.RLock()
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
        self.output = Output(stores, retry=options.retry)
        self._progress = Progress(shown=options.progress_bar, label=str(stores[-1].url))
        self._open, self._published = True, False
        self._run: _Run | None = None
        self.rows: AnyRows = InferringRows()
        folders = [store for store in stores if isinstance(store, LocalStore)]
        self._folders = [store.lock() for store in folders]
        try:
            for store, lock in zip(folders, self._folders, strict=True):
                lock.acquire()
                sweep(store)
            self._opening = prepare(self.output, options.mode())
            if columns is None:
                columns = self._opening.columns
            if columns is not None:
                self._begin(columns)
            elif self._opening.finished:
                self.rows = ClosedRows(self._finished_reason(), complete=True)
            else:
                begin(self.output, self._opening, None)
            _in_child.add(weakref.WeakMethod(self._disown, _in_child.discard))
            if self.num_safe_samples:
                _log.info("%s: going on after %d samples", stores[0].url, self.num_safe_samples)
        except BaseException:
            release_all(self._folders)
            raise

    @property
    def num_safe_samples(self) -> int:
        """How many samples are durable by now."""
        if self._opening.finished:
            return self._opening.finished.samples
        done = self._run.finisher.durable() if self._run else self._opening.done
        return sum(record.samples for record in done)

    def write_batch(self, columns: Any) -> None:  # noqa: ANN401 - a mapping or any Arrow table
        """Write the rows of a table, or of each batch of a reader."""
        with self.lock:
            if hasattr(columns, "read_next_batch"):
                for batch in columns:
                    self._write_batch(as_table(batch))
            else:
                self._write_batch(as_table(columns) if is_arrow(columns) else columns)

    def _write_batch(self, columns: Any) -> None:  # noqa: ANN401 - a mapping or an Arrow table
        if isinstance(self.rows, InferringRows) and not self.rows.samples:
            self._begin(infer_arrow(columns) if is_arrow(columns) else infer_batch(columns))
        run = self._drained()
        block = run.kind.batch(columns, self.rows.first)
        if block is not None:
            with self._whole():
                run.assembly.add(block)
                self.rows.first += len(block.lengths)
            self._progress.add(samples=len(block.lengths), size=int(block.lengths.sum()))

    def finish(self) -> None:
        """Store what is left, publish the index, and end; raises what a thread met."""
        with self.lock:
            try:
                if not isinstance(self.rows, ClosedRows):
                    self._finish()
                elif not self.rows.complete:
                    raise WriterStateError(self.rows.reason)  # noqa: TRY301 - as any other error
                self._close(FINISHED, complete=True)
            except BaseException:
                self.abort()
                raise

    def cancel(self) -> None:
        """Stop without an index, dropping the shards that no thread has begun to store."""
        self.output.give_up()  # before the lock: who holds it may be waiting for a store
        with self.lock:
            self.abort()

    def settle(self) -> None:
        """Let full shards become safe, if this has not ended: they are whole whatever happened."""
        with self.lock:
            if self._open and self._run:
                with contextlib.suppress(StreamingError, OSError):
                    self.drain()
                self._run.finisher.settle()

    def kind(self) -> ShardKind:
        """Return the kind of shard, of which the columns must be known."""
        if self._run is None:
            msg = "the columns are not known: give columns, or write some samples first"
            raise SchemaError(msg)
        return self._run.kind

    @property
    def state(self) -> str:
        """Whether it is open, finished, or stopped."""
        return "open" if self._open else "finished" if self._published else "stopped"

    # --- within -----------------------------------------------------------------------------------

    def _begin(self, columns: Mapping[str, str], *, inferred: bool = False) -> None:
        """Get ready for samples of these columns."""
        kind = self._make_kind(columns, self.options)
        opening, where = self._opening, self.output.first.url
        if opening.finished:
            check_finished(opening.finished.table, kind.config, where)
            self.rows = ClosedRows(self._finished_reason(), complete=True)
            return
        settings = {**kind.config, "columns": dict(columns)}
        if opening.settings and opening.done:
            check_settings(opening.settings, settings, where)
        if opening.base:
            check_finished(opening.base.table, kind.config, where)
            settings["base"] = opening.base.identity()
        begin(self.output, opening, settings)
        finisher = Finisher(kind, self.output, self.options, opening, progress=self._progress)
        fresh = not opening.done and not opening.base
        assembly = Assembly(
            self.options.cut_rule(kind), take=finisher.take, full=finisher.submit, fresh=fresh
        )
        self._run = _Run(kind, assembly, finisher)
        encoder = kind.rows(sum(record.samples for record in opening.done))
        self.rows = KnownKeysRows(encoder, columns) if inferred else encoder

    def drain(self) -> None:
        """Move the encoded samples into shards."""
        if isinstance(self.rows, InferringRows):
            self._settle(self.rows)
            return
        with self._whole():
            block = self.rows.take()
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
            if not isinstance(self.rows, ClosedRows):
                self.rows = ClosedRows(STOPPED, complete=False)
            raise

    def _disown(self) -> None:
        """Refuse everything, in a forked child, without touching what the parent uses."""
        if self._open:
            self._open = False
            self.lock = threading.RLock()  # a thread that is not here may have held it
            self._run = None
            self.rows = ClosedRows(FORKED, complete=False)

    def _drained(self) -> _Run:
        self.drain()
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
                if self.rows.add(sample):
                    self.drain()
            self.drain()

    def _finish(self) -> None:
        if isinstance(self.rows, InferringRows):
            if self.rows.samples:
                self._settle(self.rows)
        else:
            self.drain()
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
        self.output.ownership.check()
        self.output.check(files, prefix="shard.")
        if sums and (self.options.checksums or (base and base.sums)):
            self.output.put(SUMS, [format_sums(sums)])
        index = dump_index(entries, extras=extras)
        self.output.conclude(INDEX, [index])
        self._published = True
        self.output.end_published(INDEX, index)

    def abort(self) -> None:
        """Stop without an index; what is durable stays for `resume=True`."""
        if not self._open:
            return
        self.output.give_up()
        if self._run:
            self._run.finisher.stop()
        rows = self.rows
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
        _log.warning("%s: %s", self.output.first.url, told)
        self._close(STOPPED, complete=False)

    def _close(self, reason: str, *, complete: bool) -> None:
        """End the threads, then give the locks back."""
        try:
            self._let_go()
        finally:  # the first may have been interrupted
            self._let_go()
            self._open = False
            self.rows = ClosedRows(reason, complete=complete)
        self._progress.close()

    def _let_go(self) -> None:
        if self._run:
            self._run.finisher.stop()
        release_all(self._folders)

    def _finished_reason(self) -> str:
        samples = self._opening.finished.samples if self._opening.finished else 0
        return (
            f"{self.output.first.url}: the conversion to resume is finished, with {samples} "
            "samples, and takes no more; skip the first num_safe_samples, or add others with "
            "append=True"
        )
