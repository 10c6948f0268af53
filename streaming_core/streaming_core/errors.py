"""Every error this project raises on purpose.

One root, [`StreamingError`][]; each child also derives from the builtin a caller would expect
(`ValueError`, `KeyError`, `FileNotFoundError`, …) and carries a stable `kind`, so that a script can
tell errors apart without parsing messages. A message says where, what was required, what came and
what to do. All of them pickle, because they travel from worker processes to the trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "CheckpointError",
    "ChecksumError",
    "DecompressionError",
    "IndexInvalidError",
    "IndexMissingError",
    "LastingError",
    "MissingColumnError",
    "MissingExtraError",
    "ObjectNotFoundError",
    "ObjectTooLargeError",
    "OrderError",
    "OutputBusyError",
    "OutputNotEmptyError",
    "Problem",
    "RangeError",
    "ResumeError",
    "SampleError",
    "SchemaError",
    "SettingError",
    "ShardCorruptError",
    "ShardFetchError",
    "ShardSizeError",
    "SourceChangedError",
    "SourceFormatError",
    "StoreBusyError",
    "StoreError",
    "StreamingError",
    "StreamsError",
    "UnsafeEncodingError",
    "UnsafeKeyError",
    "WaitTimeoutError",
    "WriterStateError",
]


class StreamingError(Exception):
    """Root of all errors of this project."""

    kind: ClassVar[str] = "streaming"
    """Stable, machine-readable name of the error's class."""

    def __str__(self) -> str:
        """Return the plain message (a `KeyError` parent would quote it)."""
        return str(self.args[0]) if self.args else ""


# --- what a user hands in -------------------------------------------------------------------------


class SchemaError(StreamingError, TypeError, ValueError):
    """Columns, encodings, compression or hashes that cannot be used as given."""

    kind = "schema"


class SettingError(StreamingError, AttributeError, ValueError):
    """A setting that cannot be changed any more, or is asked for before there is one."""

    kind = "setting"


class SampleError(StreamingError, TypeError, ValueError):
    """A sample that does not fit the columns: says which, the column, what was wanted and came."""

    kind = "sample"


class MissingColumnError(SampleError, KeyError):
    """A sample or batch lacks a declared column."""

    kind = "missing-column"


class UnsafeEncodingError(StreamingError, PermissionError, ValueError):
    """Data that needs an encoding able to run code (`pkl`), without permission by name."""

    kind = "unsafe-encoding"


class OrderError(StreamingError, ValueError):
    """Settings of order, weights, batches or world that do not go together, or a place outside."""

    kind = "order"


class MissingExtraError(StreamingError, ImportError):
    """A feature needs an optional dependency that is not installed; names the extra to install."""

    kind = "missing-extra"


# --- what comes from outside ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document."""

    path: str
    """Where, as a JSON path such as `$.shards[3].raw_data.bytes`."""
    text: str
    """What was required and what came."""
    kind: str
    """Machine-readable: `type`, `value`, `missing`, `range`, `name`, `duplicate`, `json`, …"""

    def __str__(self) -> str:
        """Return `path: text`."""
        return f"{self.path}: {self.text}"


class IndexInvalidError(StreamingError, ValueError):
    """An index document that cannot be trusted; `problems` lists all that is wrong with it."""

    kind = "index-invalid"
    max_listed: ClassVar[int] = 20

    def __init__(self, where: str, problems: tuple[Problem, ...]) -> None:
        """Keep `problems` and build the message from the first `max_listed` of them."""
        super().__init__(where, problems)
        self.where = where
        self.problems = problems

    def __str__(self) -> str:
        """List the problems, one a line."""
        lines = [f"{self.where}: {len(self.problems)} problem(s) in the index"]
        lines += [f"  {problem}" for problem in self.problems[: self.max_listed]]
        if len(self.problems) > self.max_listed:
            lines.append(f"  … and {len(self.problems) - self.max_listed} more")
        return "\n".join(lines)


class IndexMissingError(StreamingError, FileNotFoundError):
    """No index where a data set was expected."""

    kind = "index-missing"


class ShardCorruptError(StreamingError, ValueError):
    """A shard whose bytes do not follow its format."""

    kind = "shard-corrupt"


class ShardSizeError(ShardCorruptError):
    """A shard file with another number of bytes than the index promises."""

    kind = "shard-size"


class ChecksumError(ShardCorruptError):
    """A file whose hash differs from the recorded one."""

    kind = "checksum"


class SourceFormatError(ShardCorruptError):
    """A file of data that nobody converted is not what it should be; says where and why."""

    kind = "source-format"


class SourceChangedError(StreamingError, RuntimeError):
    """A file of data that nobody converted was replaced after it was indexed; index it again."""

    kind = "source-changed"


class DecompressionError(ShardCorruptError):
    """Compressed bytes that are broken, or expand to another size than the index promises."""

    kind = "decompression"


# --- writing --------------------------------------------------------------------------------------


class OutputNotEmptyError(StreamingError, FileExistsError):
    """The place to write to already holds something, and nothing said what to do with it."""

    kind = "output-not-empty"


class OutputBusyError(StreamingError, FileExistsError):
    """Another live process is writing to the same place."""

    kind = "output-busy"


class ResumeError(StreamingError, ValueError):
    """An unfinished conversion cannot be continued with these settings; says what differs."""

    kind = "resume"


class WriterStateError(StreamingError, RuntimeError):
    """A call that the writer's state does not allow, such as `write` after `finish`."""

    kind = "writer-state"


# --- reading --------------------------------------------------------------------------------------


class CheckpointError(StreamingError, ValueError):
    """A checkpoint that does not belong to this data set or its settings; says what differs."""

    kind = "checkpoint"


class WaitTimeoutError(StreamingError, TimeoutError):
    """A wait that reached its deadline; says what it waited for, and who has it if known."""

    kind = "wait-timeout"


class StreamsError(StreamingError):
    """Several streams of a data set cannot be opened; the message has what became of the first."""

    kind = "streams"

    def __init__(self, message: str, *, errors: tuple[Exception, ...] = ()) -> None:
        """Keep all errors."""
        super().__init__(message)
        self.errors = errors
        """What became of each stream that could not be opened, in order."""


# --- storage --------------------------------------------------------------------------------------


class StoreError(StreamingError, OSError):
    """A store failed; the message names the URL and the operation, the cause is chained."""

    kind = "store"


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """The store has no object under this key."""

    kind = "not-found"


class AlreadyExistsError(StoreError, FileExistsError):
    """A create-only put found an object in its place."""

    kind = "already-exists"


class AccessDeniedError(StoreError, PermissionError):
    """The store refused the credentials or the operation."""

    kind = "access-denied"


class RangeError(StoreError, ValueError):
    """A byte range that is malformed or not fully inside the object."""

    kind = "range"


class ObjectTooLargeError(StoreError, ValueError):
    """An object larger than the caller allowed; nothing of it was read."""

    kind = "too-large"


class UnsafeKeyError(StoreError, ValueError):
    """A key that is no safe relative name, is reserved, or leads out of the store's folder."""

    kind = "unsafe-key"


class LastingError(StoreError):
    """What somebody has to put right before any request can succeed.

    There is no such bucket, or the server's certificate is not trusted. It says nothing of single
    objects, so it is no `ObjectNotFoundError`, after which many go on without the object.
    """

    kind = "lasting"


class StoreBusyError(StoreError):
    """A store that asks for fewer requests (429, 503); the next may be made `retry_after` later."""

    kind = "store-busy"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Keep what a program needs."""
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the store wants to be left alone for; None if it does not say."""


class ShardFetchError(StoreError):
    """A shard could not be brought from its store; the message ends with the last cause."""

    kind = "shard-fetch"

    def __init__(
        self, message: str, *, shard: int = -1, basename: str = "", url: str = "", attempts: int = 0
    ) -> None:
        """Keep what a program needs; a pickled copy has it too, though not the chained cause."""
        super().__init__(message)
        self.shard = shard
        """Its number in the index, from 0."""
        self.basename = basename
        """The file that was wanted."""
        self.url = url
        """The store it was wanted from."""
        self.attempts = attempts
        """How many requests were made for it."""
