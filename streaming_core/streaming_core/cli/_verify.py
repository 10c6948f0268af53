"""Checking a whole data set: every problem it has, shard by shard, in threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming_core._store import LocalStore
from streaming_core._workers import in_order
from streaming_core.cli._check import CheckOptions, Finding, ShardResult, check_shard
from streaming_core.cli._place import load_table, read_sums
from streaming_core.cli._strays import file_names, stray_files, temp_files
from streaming_core.errors import IndexInvalidError, MissingExtraError, ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._index import ShardTable
    from streaming_core._store import Store

__all__ = ["Report", "verify_place", "verify_table"]


@dataclass(slots=True)
class Report:
    """What `verify` found; the document of `verify --json`."""

    url: str
    """The data set."""
    ok: bool = True
    """Whether there are no problems; warnings do not count."""
    mode: str = "full"
    """`full`; `fast`: only presence and sizes; `index`: that one is broken, no more was read."""
    num_shards: int = 0
    """Shards that the index names."""
    num_samples: int = 0
    """Samples that the index promises."""
    num_bytes: int = 0
    """Bytes of the files that were there with the right size."""
    num_decoded: int = 0
    """Samples that decoded."""
    undecoded_columns: tuple[str, ...] = ()
    """Columns that were not decoded, because that could run code."""
    has_sums: bool = False
    """Whether there is a file of sums that the files were checked against."""
    problems: list[Finding] = field(default_factory=list[Finding])
    """All that is wrong."""
    warnings: list[Finding] = field(default_factory=list[Finding])
    """What is odd, but does no harm."""

    def fail(self, finding: Finding) -> None:
        """Add a problem."""
        self.problems.append(finding)
        self.ok = False


def verify_place(
    store: Store,
    *,
    fast: bool = False,
    allow_unsafe: bool = False,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Report:
    """Check the data set in `store`; raises only if there is no index, or no way to read.

    `on_progress` is called with the shards done and their number, from the calling thread.
    """
    try:
        table = load_table(store)
    except IndexInvalidError as error:
        report = Report(store.url, mode="index")
        for problem in error.problems:
            report.fail(Finding(problem.kind, problem.text, file=problem.path))
        return report
    return verify_table(
        store,
        table,
        fast=fast,
        allow_unsafe=allow_unsafe,
        workers=workers,
        on_progress=on_progress,
    )


def verify_table(
    store: Store,
    table: ShardTable,
    *,
    fast: bool = False,
    allow_unsafe: bool = False,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Report:
    """Check the files in `store` against the index `table`, `workers` shards at a time."""
    report = Report(store.url, mode="fast" if fast else "full")
    report.num_shards, report.num_samples = table.num_shards, table.num_samples
    sums = _sums(store, table, report)
    sizes = {info.key: info.size for info in store.list()}
    options = CheckOptions(fast=fast, allow_unsafe=allow_unsafe, sums=sums)

    def check(index: int) -> ShardResult:
        return _guarded(store, table, index, options, sizes)

    undecoded: set[str] = set()
    on_progress(0, table.num_shards)
    results = in_order(check, range(table.num_shards), at_a_time=workers, name="streaming-verify")
    for done, result in enumerate(results, 1):
        for finding in result.findings:
            report.fail(finding)
        report.num_bytes += result.num_bytes
        report.num_decoded += result.num_decoded
        undecoded.update(result.undecoded)
        on_progress(done, table.num_shards)
    report.undecoded_columns = tuple(sorted(undecoded))
    report.warnings += stray_files(sizes, table)
    if isinstance(store, LocalStore):
        report.warnings += temp_files(store)
    return report


def _guarded(
    store: Store, table: ShardTable, index: int, options: CheckOptions, sizes: dict[str, int]
) -> ShardResult:
    try:
        return check_shard(store, table.shard(index), options, sizes)
    except (MissingExtraError, MemoryError):
        raise  # the shard is not to blame
    except Exception as error:  # noqa: BLE001 - a thread's edge: one shard must not hide the others
        name = table.shard(index).raw.basename
        text = f"{type(error).__name__}: {error}"
        return ShardResult([Finding("shard-corrupt", text, index, name)])


def _sums(store: Store, table: ShardTable, report: Report) -> dict[str, str]:
    """Return the hashes in the file of sums, and note what is wrong with the file itself."""
    try:
        sums = read_sums(store)
    except ShardCorruptError as error:
        report.fail(Finding("checksums", str(error), file="checksums.xxh128"))
        return {}
    if sums is None:
        return {}
    report.has_sums = True
    known = file_names(table)
    for name in sorted(sums.keys() - known):
        text = "the file of sums names it, the index does not"
        report.warnings.append(Finding("stray-sum", text, file=name))
    stored = {
        (packed or raw).basename
        for shard in map(table.shard, range(table.num_shards))
        for raw, packed in ((shard.raw, shard.zip), (shard.raw_meta, shard.zip_meta))
        if raw is not None
    }
    missing = len(stored - sums.keys())
    if missing:
        text = f"{missing} of {len(stored)} files have no hash in it"
        report.warnings.append(Finding("no-sum", text, file="checksums.xxh128"))
    return sums
