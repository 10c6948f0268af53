"""How a shard's files come into the folder: fetched or expanded, checked, then in place at once."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from streaming_core._format import with_checked_start
from streaming_core._store import Attempts, ProgressDeadline, RequestPolicy, Store
from streaming_core.errors import (
    ObjectNotFoundError,
    ShardCorruptError,
    ShardFetchError,
    StoreError,
)
from streaming_reader._cache._counts import Counts
from streaming_reader._cache._ledger import Entry, State
from streaming_reader._cache._locks import FileHandle
from streaming_reader._cache._made import made, made_together
from streaming_reader._cache._mapped import content_digest, hold
from streaming_reader._cache._places import file_stamp
from streaming_reader._cache._shelf import combined, file_pairs
from streaming_reader._cache._transfer import (
    expanded,
    file_pieces,
    received,
    teed,
    write_pieces,
    written_digest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from streaming_core._index import FileInfo, FileRole, ShardInfo
    from streaming_core._read import FileCheck
    from streaming_reader._cache._inspector import Known
    from streaming_reader._cache._made import Maker
    from streaming_reader._cache._rate_limit import NodeRateLimiter
    from streaming_reader._cache._settings import CacheSettings
    from streaming_reader._cache._shelf import FilePair, Shelf

__all__ = ["Filler", "Made"]

_PART_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Made(NamedTuple):
    """A shard whose files are finished parts, not yet in place."""

    parts: list[tuple[str, str]]
    """(path of the part, basename), in the order in which they are to appear."""
    handles: list[FileHandle]
    """The decompressed files, open."""
    entry: Entry
    """What the ledger is to say."""
    leave: list[str]
    """Basenames of files that are not needed any more."""


class Filler:
    """Makes the files of shards, one at a time for each lock that is held."""

    def __init__(
        self,
        shelf: Shelf,
        remote: Store | Maker | None,
        settings: CacheSettings,
        known: Known,
        limiter: NodeRateLimiter,
    ) -> None:
        self._policy = RequestPolicy(settings.tries, timeout=settings.timeout, limiter=limiter)
        self._shelf = shelf
        self._remote = remote
        self._settings = settings
        self._known = known
        self.counts = Counts()
        """What was done so far."""

    def size(self, info: ShardInfo) -> int:
        """Return the bytes that a shard will have in the folder while it is made."""
        total = 0
        for pair in file_pairs(info):
            total += pair.raw.bytes
            if pair.zip is not None and (self._keeps_zip or self._zip_is_here(pair.zip)):
                total += pair.zip.bytes
        return total

    def has_source(self, info: ShardInfo) -> bool:
        """Tell whether there is anything to make the shard from."""
        return self._remote is not None or all(
            pair.zip is not None and self._zip_is_here(pair.zip) for pair in file_pairs(info)
        )

    def kin(self, info: ShardInfo) -> list[ShardInfo]:
        """Return the shards that are made of the same bytes as one, and itself, in order."""
        remote, table = self._remote, self._shelf.table
        if remote is None or isinstance(remote, Store):
            return [info]
        names = remote.kin(info.raw.basename)
        first = info.index - names.index(info.raw.basename)
        numbers = range(first, first + len(names))
        if first < 0 or list(table.basenames("raw")[first : numbers.stop]) != names:
            return [info]  # some are in another data set
        return [table.shard(number) for number in numbers]

    def made_together(
        self, shards: Sequence[ShardInfo], touch: Callable[[], None]
    ) -> Generator[tuple[ShardInfo, memoryview]]:
        """Yield shards that are kin with the bytes of their files; `touch` is called as these come.

        Raises:
            ShardFetchError: The store did not give what the index says, however often asked.
        """
        remote = self._remote
        if remote is None or isinstance(remote, Store):
            raise self.no_source(shards[0])
        attempts = self._attempts(ProgressDeadline(self._settings.stall_seconds))
        names = [shard.raw.basename for shard in shards]
        coming = made_together(attempts, remote, names, touch, self.counts)
        with closing(coming):
            for shard in shards:
                try:
                    _, data = next(coming)
                except (StoreError, ShardCorruptError) as error:
                    raise self._failure(shard, file_pairs(shard)[0], attempts, error) from error
                yield shard, data

    def make(
        self,
        info: ShardInfo,
        stack: ExitStack,
        progress: ProgressDeadline,
        *,
        keep_bad: bool,
        given: memoryview | None = None,
    ) -> Made:
        """Make the files of a shard, whose lock the caller holds; `stack` closes them.

        What is `given` of a file that no store has is not made.

        Raises:
            ShardFetchError: The store did not give what the index says, however often asked.
            ShardCorruptError: There is no store, and a compressed file in the folder is wrong.
            OSError: The folder cannot take it.
        """
        began = time.perf_counter_ns()
        job = _Job(info, self._attempts(progress), keep_bad, given)
        digests: list[int] = []
        handles: list[FileHandle] = []
        parts: list[tuple[str, str]] = []
        leave: list[str] = []
        pairs = file_pairs(info)
        for pair in pairs:
            handle = self._part(job, pair.role, stack)
            hold(handle)
            handles.append(handle)
            zip_part = None
            if pair.zip is not None and self._keeps_zip and not self._zip_is_here(pair.zip):
                zip_part = self._part(job, pair.stored_role, stack)
                parts.append((self._part_path(job, pair.stored_role), pair.zip.basename))
            elif pair.zip is not None and not self._keeps_zip:
                leave.append(pair.zip.basename)
            parts.append((self._part_path(job, pair.role), pair.raw.basename))
            digests.append(self._filled(job, pair, handle, zip_part))
        parts.reverse()  # the data file appears last: with it the shard is complete
        changed = size = 0
        for handle in handles:
            state = os.fstat(handle.number)
            changed = combined(changed, state.st_mtime_ns)
            size += state.st_size
        size += sum(pair.zip.bytes for pair in pairs if pair.zip and self._keeps_zip)
        digest = content_digest(digests)
        entry = Entry(State.PRESENT, size, time.time_ns(), changed, digest)
        self.counts.shards_fetched += 1
        self.counts.fill_ns += time.perf_counter_ns() - began
        return Made(parts, handles, entry, leave)

    def publish(self, made: Made) -> None:
        """Let the finished parts appear."""
        places = self._shelf.places
        # First, so that dying in between leaves less than is counted.
        for basename in made.leave:
            places.remove(basename)
        for path, basename in made.parts:
            places.publish(path, basename)

    def expand_here(self, info: ShardInfo) -> list[memoryview] | None:
        """Return a shard's decompressed files in memory from compressed ones in the folder.

        For folders that cannot be written to. None if the folder does not have them all.
        """
        views: list[memoryview] = []
        for pair in file_pairs(info):
            path = self._shelf.places.file(pair.stored.basename)
            check = self._known.check(pair.stored)
            if file_stamp(path) is None:
                return None
            pieces: Iterable[bytes | bytearray | memoryview] = file_pieces(path, pair.stored, check)
            if pair.zip is not None:
                found = expanded(info.schema, pieces, pair.zip, pair.raw)
                pieces = with_checked_start(info, pair.role, found)
            views.append(memoryview(b"".join(bytes(piece) for piece in pieces)))
        return views

    # --- within -----------------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._shelf.places.folder if self._remote is None else self._remote.url

    @property
    def _keeps_zip(self) -> bool:
        return self._settings.keep_zip or self._remote is None

    def _attempts(self, progress: ProgressDeadline) -> Attempts:
        return self._policy.begin(progress, self.counts)

    def _zip_is_here(self, packed: FileInfo) -> bool:
        stamp = file_stamp(self._shelf.places.file(packed.basename))
        return stamp is not None and stamp.size == packed.bytes

    def _part_path(self, job: _Job, role: FileRole) -> str:
        return self._shelf.places.part(job.info.raw.basename, role)

    def _part(self, job: _Job, role: FileRole, stack: ExitStack) -> FileHandle:
        handle = FileHandle.at(self._part_path(job, role), _PART_FLAGS)
        stack.callback(handle.close)
        return handle

    def _filled(
        self, job: _Job, pair: FilePair, handle: FileHandle, zip_part: FileHandle | None
    ) -> int:
        """Fill the part of one decompressed file, and that of its compressed one; return the hash.

        Wrong bytes are fetched again at once; if other wrong bytes follow, the transport is at
        fault, and each counts as a failed request. The same ones twice are an error, and so is what
        a compressed file expands to that is the right one.
        """
        if pair.zip is not None and zip_part is None and self._zip_is_here(pair.zip):
            digest = self._filled_from_zip(job, pair, pair.zip, handle)
            if digest is not None:
                return digest
        if self._remote is None:
            raise self.no_source(job.info)
        wrong: set[tuple[str, int]] = set()
        while True:
            check = self._known.check(pair.stored)
            pieces = self._coming(self._remote, job, pair, check)
            try:
                source = pieces if zip_part is None else teed(pieces, zip_part.number)
                return self._written(job.info, pair, handle, source)
            except ShardCorruptError as error:
                found = str(error), written_digest(handle.number)
                if job.keep_bad:
                    self._keep_copy(job, pair, is_zip=zip_part is not None)
                if found in wrong or check.is_right():
                    raise self._failure(job.info, pair, job.attempts, error) from error
                if wrong:
                    self._failed(job, pair, error)
                wrong.add(found)
            except StoreError as error:
                self._failed(job, pair, error)
            finally:
                pieces.close()

    def _failed(self, job: _Job, pair: FilePair, error: StoreError | ShardCorruptError) -> None:
        """Wait until the next request may be made; raise `ShardFetchError` if none is."""
        try:
            job.attempts.failed(error)
        except (StoreError, ShardCorruptError):
            raise self._failure(job.info, pair, job.attempts, error) from error

    def _coming(
        self, remote: Store | Maker, job: _Job, pair: FilePair, check: FileCheck
    ) -> Generator[memoryview]:
        if job.given is not None:
            return _whole(job.given)
        if isinstance(remote, Store):
            return received(job.attempts, remote, pair.stored, check)
        return made(job.attempts, remote, pair.raw, self.counts)

    def _filled_from_zip(
        self, job: _Job, pair: FilePair, packed: FileInfo, handle: FileHandle
    ) -> int | None:
        """Fill a part from a compressed file in the folder; None if that is worth nothing."""
        path = self._shelf.places.file(packed.basename)
        try:
            pieces = file_pieces(path, packed, self._known.check(packed))
            return self._written(job.info, pair, handle, pieces)
        except FileNotFoundError:
            return None  # evicted meanwhile
        except ShardCorruptError:
            if self._remote is None:
                raise
            if job.keep_bad:
                self._shelf.places.set_aside(path, job.info.raw.basename)
            self._shelf.places.remove(packed.basename)
            return None

    def _written(
        self, info: ShardInfo, pair: FilePair, handle: FileHandle, pieces: Iterable[memoryview]
    ) -> int:
        if pair.zip is None:
            return write_pieces(handle.number, pieces, lambda _: None)
        check = self._known.check(pair.raw)
        out = with_checked_start(info, pair.role, expanded(info.schema, pieces, pair.zip, pair.raw))
        digest = write_pieces(handle.number, out, check.update)
        check.finish(pair.zip.basename)
        return digest

    def _keep_copy(self, job: _Job, pair: FilePair, *, is_zip: bool) -> None:
        """Keep what came wrong, to be looked at."""
        path = self._part_path(job, pair.stored_role if is_zip else pair.role)
        with suppress(OSError):  # it only helps to find out
            shutil.copyfile(path, f"{path}.copy")
            self._shelf.places.set_aside(f"{path}.copy", job.info.raw.basename)

    def no_source(self, info: ShardInfo) -> ShardFetchError:
        """Return the error for a shard that is not there, and cannot be had from anywhere."""
        folder = self._shelf.places.folder
        name = file_pairs(info)[0].stored.basename
        error = ShardFetchError(
            f"shard {info.index}, {name}: not in {folder}, and there is no remote to fetch it "
            "from; copy it there, or name the remote",
            shard=info.index,
            basename=name,
            url=folder,
        )
        error.__cause__ = ObjectNotFoundError(f"{name}: not in {folder}")
        return error

    def unreadable(self, info: ShardInfo, error: Exception, fetches: int) -> ShardFetchError:
        """Return the error for a shard of the right size that cannot be read, each time anew."""
        name = file_pairs(info)[0].stored.basename
        return ShardFetchError(
            f"shard {info.index}, {name} from {self._url}: wrong each time, after {fetches} "
            f"download(s) of this shard; the last error: {error}",
            shard=info.index,
            basename=name,
            url=self._url,
            attempts=fetches,
        )

    def _failure(
        self, info: ShardInfo, pair: FilePair, attempts: Attempts, error: Exception
    ) -> ShardFetchError:
        what = "wrong each time" if isinstance(error, ShardCorruptError) else "not to be had"
        return ShardFetchError(
            f"shard {info.index}, {pair.stored.basename} from {self._url}: {what}, after "
            f"{attempts.requests} request(s) for this shard; the last error: {error}",
            shard=info.index,
            basename=pair.stored.basename,
            url=self._url,
            attempts=attempts.requests,
        )


class _Job(NamedTuple):
    """One shard that is being made."""

    info: ShardInfo
    attempts: Attempts
    keep_bad: bool
    given: memoryview | None
    """The file, if somebody has made it."""


def _whole(data: memoryview) -> Generator[memoryview]:
    yield data
