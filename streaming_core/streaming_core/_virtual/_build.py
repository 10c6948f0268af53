"""Looking at all files, many at once; those that were looked at before are not looked at again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming_core._store import RequestPolicy
from streaming_core._virtual._index import IndexBuilder, VirtualIndex
from streaming_core._virtual._kinds import open_kind
from streaming_core._virtual._model import SourceReader
from streaming_core._virtual._versions import may_be_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming_core._store import Caller, Store
    from streaming_core._virtual._model import Scan, SourceFile

__all__ = ["Changes", "build_index", "changes_since"]


def build_index(
    store: Store,
    files: Sequence[SourceFile],
    kind_name: str,
    options: Mapping[str, Any] | None = None,
    *,
    pattern: str = "",
    known: VirtualIndex | None = None,
    policy: RequestPolicy | None = None,
    progress: Callable[[int], None] | None = None,
) -> VirtualIndex:
    """Return the index of `files`, which lie in `store` and are those that `pattern` means.

    Of those that `known` has, in the same version, nothing is read. Others are asked for again as
    `policy` says. `progress` is told how many files are done, from time to time.

    Raises:
        SourceFormatError: A file is none of this format.
        StoreError: The store failed, after all tries.
    """
    kind = open_kind(kind_name, options)
    given = options or {}
    if known is not None and dict(known.options) == dict(given):
        given = known.options  # in the order in which they are part of the names of units
    before = _known_files(known, kind_name, given)
    beside: dict[str, bytes] = {}

    def look(file: SourceFile, call: Caller) -> Scan:
        reader = SourceReader(store, file, beside, is_of_table=kind.is_of_table)
        return call(lambda: kind.scan(reader))

    new = [file for file in files if file not in before]
    scans = (policy or RequestPolicy()).in_order(look, new)
    builder = IndexBuilder(kind_name, given, pattern=pattern, known=known)
    for done, file in enumerate(files, 1):
        at = before.get(file)
        if at is None:
            builder.add(file, next(scans))
        else:
            builder.copy(at)
        if progress is not None:
            progress(done)
    return builder.finish()


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of files since they were indexed; names in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Of other size or version."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.replaced)


def changes_since(known: VirtualIndex, files: Iterable[SourceFile]) -> Changes:
    """Return how `files`, which are there now, differ from those of an index. Pure.

    Where a version is not known, a file of the same size counts as the same.
    """
    before = {key: at for at, key in enumerate(known.keys)}
    added: list[str] = []
    replaced: list[str] = []
    for file in files:
        at = before.pop(file.key, None)
        if at is None:
            added.append(file.key)
            continue
        size = int(known.sizes[at])
        if size != file.size or not may_be_same(known.etags[at], file.etag, size):
            replaced.append(file.key)
    return Changes(tuple(sorted(added)), tuple(sorted(before)), tuple(sorted(replaced)))


def _known_files(
    known: VirtualIndex | None, kind: str, options: Mapping[str, Any]
) -> dict[SourceFile, int]:
    """Return where the files of an earlier index stand in it, if it was made in the same way."""
    if known is None or known.kind != kind or dict(known.options) != dict(options):
        return {}
    files = (known.file(at) for at in range(known.num_files))
    # Without a version a file of the same size may be another.
    return {file: at for at, file in enumerate(files) if file.etag}
