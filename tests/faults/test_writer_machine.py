"""Whatever is done to a data set in whatever order, it reads back as a list of samples would."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.faults.jobs import COLUMNS
from tests.profiles import examples

from streaming_core import MDSWriter, load_index, merge_index, open_store
from streaming_core._read import SUMS, iterate_samples, parse_sums

_COUNTS = st.integers(0, 12)
Samples = list[dict[str, Any]]


class _StopError(Exception):
    """What ends a block early."""


class WriterMachine(RuleBasedStateMachine):
    """A folder and a model of it: the published samples, and those of an unfinished conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="machine-"))
        self.published: Samples | None = None
        self.source: Samples = []
        self.unfinished = False
        self.appending = False
        self.writer: MDSWriter | None = None
        self.parts: list[Samples] = []
        self.number = 0
        self.compression: str | None = None

    @initialize(compression=st.sampled_from([None, "zstd:1"]))
    def choose(self, compression: str | None) -> None:
        """Settle what holds for the whole life of the folder."""
        self.compression = compression

    @property
    def out(self) -> Path:
        """The folder of the data set."""
        return self.root / "out"

    def _open(self, **how: Any) -> MDSWriter:
        return MDSWriter(
            out=self.out,
            columns=COLUMNS,
            size_limit=200,
            compression=self.compression,
            max_workers=2,
            checksums=True,
            **how,
        )

    def _new(self, count: int) -> Samples:
        self.number += count
        numbers = range(self.number - count, self.number)
        return [{"id": i, "text": "x" * (i % 40)} for i in numbers]

    # --- opening ----------------------------------------------------------------------------------

    @precondition(lambda self: self.writer is None and not self.unfinished)
    @precondition(lambda self: self.published is None)
    @rule()
    def start(self) -> None:
        """Begin in an empty folder."""
        self.writer, self.source, self.appending = self._open(), [], False

    @precondition(lambda self: self.writer is None)
    @rule()
    def start_over(self) -> None:
        """Begin by deleting everything."""
        self.writer = self._open(exist_ok=True)
        self.published, self.source, self.appending = None, [], False
        self.unfinished = False

    @precondition(lambda self: self.writer is None and self.published is not None)
    @rule()
    def append(self) -> None:
        """Begin an append, dropping one that was not finished."""
        self.writer, self.source, self.appending = self._open(append=True), [], True
        self.unfinished = False

    @precondition(lambda self: self.writer is None and self.unfinished)
    @rule()
    def resume(self) -> None:
        """Go on with what was stopped: write the part of the source that is not safe."""
        self.writer = self._open(resume=True, append=self.appending)
        self.unfinished = False
        for sample in self.source[self.writer.num_safe_samples :]:
            self.writer.write(sample)

    @precondition(lambda self: self.writer is None and not self.unfinished)
    @precondition(lambda self: self.published is not None)
    @rule()
    def resume_finished(self) -> None:
        """Resuming what is finished does nothing, and says how much there is."""
        with self._open(resume=True) as writer:
            assert writer.num_safe_samples == len(self.published or [])

    # --- writing ----------------------------------------------------------------------------------

    @precondition(lambda self: self.writer is not None)
    @rule(count=_COUNTS)
    def write(self, count: int) -> None:
        """Write samples one by one."""
        assert self.writer is not None
        for sample in self._new(count):
            self.writer.write(sample)
            self.source.append(sample)

    @precondition(lambda self: self.writer is not None)
    @rule(count=_COUNTS)
    def write_batch(self, count: int) -> None:
        """Write samples as columns."""
        assert self.writer is not None
        samples = self._new(count)
        self.writer.write_batch({key: [sample[key] for sample in samples] for key in COLUMNS})
        self.source += samples

    # --- ending -----------------------------------------------------------------------------------

    @precondition(lambda self: self.writer is not None)
    @rule()
    def finish(self) -> None:
        """Publish."""
        assert self.writer is not None
        self.writer.finish()
        self.published = (self.published or []) + self.source
        self.writer, self.source = None, []

    @precondition(lambda self: self.writer is not None)
    @rule()
    def abort(self) -> None:
        """Leave the block by an exception."""
        assert self.writer is not None
        with suppress(_StopError), self.writer:
            raise _StopError
        # Before the first full shard nothing is kept, so that there is nothing to resume.
        self.unfinished = (self.out / ".writing/settings.json").exists()
        self.writer = None

    @precondition(lambda self: self.writer is None and len(self.parts) < 4)
    @rule(counts=st.lists(_COUNTS, min_size=1, max_size=3))
    def write_parts_and_merge(self, counts: list[int]) -> None:
        """Write parts beside the folder and join all there are."""
        for count in counts:
            samples = self._new(count)
            with MDSWriter(
                out=self.root / "parts", columns=COLUMNS, part=len(self.parts), size_limit=200
            ) as part:
                for sample in samples:
                    part.write(sample)
            self.parts.append(samples)
        merge_index(str(self.root / "parts"))
        assert _read(self.root / "parts") == [sample for part in self.parts for sample in part]

    @invariant()
    def reads_back(self) -> None:
        """What is published is the model; while nothing is, there is no index."""
        if self.published is None:
            assert not (self.out / "index.json").exists()
            return
        assert _read(self.out) == self.published
        if self.writer is None and not self.unfinished:
            table = load_index(self.out)
            shards = [table.shard(i) for i in range(table.num_shards)]
            stored = {(shard.zip or shard.raw).basename for shard in shards}
            found = {path.name for path in self.out.iterdir()}
            assert found - {SUMS} == stored | {"index.json"}
            if stored:
                assert set(parse_sums((self.out / SUMS).read_bytes())) == stored

    def teardown(self) -> None:
        """End the writer and remove the folders."""
        if self.writer is not None:
            self.writer.cancel_future_jobs()
        shutil.rmtree(self.root)


def _read(folder: Path) -> Samples:
    return list(iterate_samples(open_store(folder), load_index(folder)))


TestWriterMachine = WriterMachine.TestCase
TestWriterMachine.settings = settings(max_examples=examples(60), stateful_step_count=25)
