"""A new index from the shards alone, published only if every one of them is sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming_core._index import MAX_INDEX_BYTES, dump_index, parse_index
from streaming_core._workers import in_order
from streaming_core.cli._check import Finding
from streaming_core.cli._entry import rebuild_entry
from streaming_core.cli._place import INDEX, Unfinished, find_unfinished, load_table
from streaming_core.cli._scan import Found, find_shards, number_gaps, show_numbers
from streaming_core.cli._verify import Report, verify_table
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    MissingExtraError,
    ObjectNotFoundError,
    ResumeError,
    StreamingError,
)
from streaming_writer._journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._index import ShardTable
    from streaming_core._store import LocalStore

__all__ = ["FixOptions", "FixReport", "fix_index"]


@dataclass(frozen=True, slots=True)
class FixOptions:
    """What a rebuilt index may leave out, and how to check it."""

    allow_gaps: bool = False
    """Go on although numbers are missing."""
    force: bool = False
    """Go on although a conversion has not ended, with what of it is safe."""
    max_shard_bytes: int = 4 << 30
    """The most bytes that a file may expand to."""
    allow_unsafe: bool = False
    """Decode columns too whose decoding can run code."""
    workers: int = 1
    """Shards looked at side by side."""


@dataclass(slots=True)
class FixReport:
    """What `verify --fix` did to the index."""

    action: str
    """`none`: the index was valid; `rebuilt`; or `refused`: the problems say why."""
    reason: str | None = None
    """Why the old index was not kept: `missing` or `broken`."""
    num_shards: int = 0
    """Shards in the new index."""
    num_samples: int = 0
    """Samples in the new index."""
    missing_numbers: list[int] = field(default_factory=list[int])
    """Shard numbers that are not there, allowed or not."""
    kept_as: str | None = None
    """The name under which the broken index was kept."""
    problems: list[Finding] = field(default_factory=list[Finding])
    """Why nothing was published, if so; what the check found is in its own report."""


def fix_index(
    store: LocalStore,
    options: FixOptions,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[FixReport, Report | None]:
    """Rebuild the index of the folder if it is missing or broken, and check the data set.

    A valid index is never touched. A new one appears only if every shard is sound; then also the
    journal of an unfinished conversion goes. The second result is None if it came to no check.

    Raises:
        IndexMissingError: There are no shards either.
        ResumeError: A conversion has not ended, and `force` was not given.
        OutputBusyError: A writer is at work here.
    """
    with store.lock():
        reason, broken = _look(store)
        if reason is None:
            return FixReport("none"), _checked(store, load_table(store), options, on_progress)
        unfinished = find_unfinished(store)
        if unfinished is not None and not options.force:
            raise ResumeError(_refusal(store, unfinished))
        report, table, index = _rebuild(store, unfinished, options)
        report.reason = reason
        if table is None:
            return report, None
        check = _checked(store, table, options, on_progress)
        if not check.ok:
            report.action = "refused"
            return report, check
        if broken is not None:
            report.kept_as = _keep(store, broken)
        store.put(INDEX, [index], if_absent=broken is None)
        if unfinished is not None:
            Journal(store).end()
        return report, check


def _look(store: LocalStore) -> tuple[str | None, bytes | None]:
    """Return why there must be a new index, or None, and the broken one if there is one."""
    try:
        data = store.get(INDEX, max_bytes=MAX_INDEX_BYTES)
    except ObjectNotFoundError:
        return "missing", None
    try:
        parse_index(data, INDEX)
    except IndexInvalidError:
        return "broken", data
    return None, None


def _checked(
    store: LocalStore,
    table: ShardTable,
    options: FixOptions,
    on_progress: Callable[[int, int], None],
) -> Report:
    return verify_table(
        store,
        table,
        allow_unsafe=options.allow_unsafe,
        workers=options.workers,
        on_progress=on_progress,
    )


def _refusal(store: LocalStore, unfinished: Unfinished) -> str:
    count = unfinished.num_samples_before + unfinished.num_safe_samples
    return (
        f"{store.path}: an unfinished conversion is here; run it again with resume=True to "
        f"complete it. An index now would make a data set of only its {count} safe samples, and "
        "end it for good; if that is what you want, add --force"
    )


def _rebuild(
    store: LocalStore, unfinished: Unfinished | None, options: FixOptions
) -> tuple[FixReport, ShardTable | None, bytes]:
    """Return the report, and the new index as table and document unless there are problems."""
    found, problems = find_shards(info.key for info in store.list() if "/" not in info.key)
    if unfinished is not None:
        stop = unfinished.first_shard + unfinished.num_safe_shards
        found = [shard for shard in found if shard.number < stop]
        kept = {name for shard in found for name in (*shard.data.values(), *shard.meta.values())}
        problems = [problem for problem in problems if problem.file in kept]
    if not found:
        msg = (
            f"{store.path}: no shards from which to rebuild an index; data sets in sub-folders are "
            "joined by: streaming-core merge"
        )
        raise IndexMissingError(msg)
    report = FixReport("refused", missing_numbers=number_gaps(shard.number for shard in found))
    report.problems += problems
    if report.missing_numbers and not options.allow_gaps:
        text = (
            f"shard(s) {show_numbers(report.missing_numbers)} are not there; put them back, or "
            "add --allow-gaps for a data set without them"
        )
        report.problems.append(Finding("gap", text))
    if report.problems:
        return report, None, b""
    entries = _entries(store, found, options, report.problems)
    index = dump_index(entries)
    try:
        table = parse_index(index, "the rebuilt index")
    except IndexInvalidError as error:
        report.problems += [
            Finding(problem.kind, problem.text, file=problem.path) for problem in error.problems
        ]
        return report, None, b""
    _check_count(table, unfinished, options, report)
    if report.problems:
        return report, None, b""
    report.action = "rebuilt"
    report.num_shards, report.num_samples = table.num_shards, table.num_samples
    return report, table, index


def _check_count(
    table: ShardTable, unfinished: Unfinished | None, options: FixOptions, report: FixReport
) -> None:
    """Refuse to lose samples that the journal knows of, as where shards lie in sub-folders."""
    if unfinished is None or options.allow_gaps or report.problems:
        return
    wanted = unfinished.num_samples_before + unfinished.num_safe_samples
    if table.num_samples != wanted:
        text = f"the shards hold {table.num_samples} samples, the journal says {wanted}"
        report.problems.append(Finding("journal", text))


def _entries(
    store: LocalStore, found: list[Found], options: FixOptions, problems: list[Finding]
) -> list[dict[str, Any]]:
    """Return the entry of each shard that has one, and note why the others have none."""

    def entry(shard: Found) -> dict[str, Any] | Finding:
        try:
            return rebuild_entry(store, shard, max_bytes=options.max_shard_bytes)
        except MissingExtraError:
            raise
        except StreamingError as error:
            name = next(iter(shard.data.values()))
            return Finding(error.kind, str(error).removeprefix(name).lstrip(",: "), file=name)

    results = list(in_order(entry, found, at_a_time=options.workers, name="streaming-fix"))
    problems += [result for result in results if isinstance(result, Finding)]
    return [result for result in results if not isinstance(result, Finding)]


def _keep(store: LocalStore, broken: bytes) -> str:
    """Keep the broken index under a name that is free, and return it."""
    names = {info.key for info in store.list(f"{INDEX}.bad")}
    name, number = f"{INDEX}.bad", 1
    while name in names:
        name, number = f"{INDEX}.bad.{number}", number + 1
    store.put(name, [broken], if_absent=True)
    return name
