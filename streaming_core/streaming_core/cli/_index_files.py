"""The index of data that nobody converted, written beside it so that training lists nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_core._store import LocalStore, RequestPolicy, open_store
from streaming_core._virtual import build_index, dump, open_kind, parse, place_of
from streaming_core._virtual._build import Changes, changes_since
from streaming_core._virtual._discover import find_files, published_name
from streaming_core._virtual._index_file import MAX_SOURCE_INDEX_BYTES
from streaming_core.cli._layout import Spread, layout_advice, spread_of
from streaming_core.errors import (
    AccessDeniedError,
    IndexInvalidError,
    IndexMissingError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_core._store import Store
    from streaming_core._virtual import Place, VirtualIndex

__all__ = ["IndexReport", "IndexSettings", "check_index", "parse_pairs", "write_index"]


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """What files are indexed how; what is not given is taken from the index that is there."""

    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the format takes."""
    storage_options: Mapping[str, Any] | None = None
    """What the store takes beyond the URL."""
    out: str | None = None
    """Where the index is kept, if not beside the data."""


@dataclass(slots=True)
class IndexReport:
    """What `index` found, and did."""

    url: str
    """Where the data lies."""
    index: str
    """Where the index lies."""
    action: str
    """`written`, `unchanged`, or `checked`."""
    format: str
    num_files: int
    num_units: int
    num_rows: int
    num_bytes: int
    """Of the files."""
    unit_rows: Spread
    unit_bytes: Spread
    """About how many each unit has once it is decoded."""
    advice: Sequence[str]
    """What of the files makes training slow, and what to do."""
    index_bytes: int
    added: Sequence[str]
    """Files that are there now and were not when the index was written before."""
    removed: Sequence[str]
    replaced: Sequence[str]
    """Files of other size or version than they had."""

    @property
    def is_current(self) -> bool:
        """Whether the index has the files that are there."""
        return self.action != "checked" or not (self.added or self.removed or self.replaced)


def write_index(
    url: str,
    settings: IndexSettings,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> IndexReport:
    """Index the files of a folder, pattern or URL; looks only at those that are new or changed.

    Raises:
        SchemaError: There are no such files, or the format or its options are wrong.
        SourceFormatError: A file is none of this format.
        AccessDeniedError: The index cannot be written there.
        StoreError: The store failed.
    """
    target = _target(url, settings)
    known = _known(target)
    kind, options = _meant(settings, known)
    kind, files = RequestPolicy().call(lambda: find_files(target.place, kind, options))
    before = known
    if known is not None and (known.kind != kind or dict(known.options) != options):
        before = None
    if known is not None and known.pattern != target.place.pattern:
        before = None
    index = build_index(
        target.place.store,
        files,
        kind,
        options,
        pattern=target.place.pattern,
        known=before,
        progress=lambda done: on_progress(done, len(files)),
    )
    changes = changes_since(before, files) if before is not None else Changes()
    data = dump(index)
    is_new = before is None or data != dump(before)
    if is_new:
        target.put(data)
    return _report(target, "written" if is_new else "unchanged", index, len(data), changes)


def check_index(url: str, settings: IndexSettings) -> IndexReport:
    """Say which files were added, removed or replaced since they were indexed; changes nothing.

    Raises:
        IndexMissingError: There is no index.
        IndexInvalidError: It cannot be read.
        SchemaError: There are no such files any more.
        StoreError: The store failed.
    """
    target = _target(url, settings)
    data = target.get()
    if data is None:
        msg = f"no index at {target.url}; write it with: streaming-core index {url}"
        raise IndexMissingError(msg)
    index = parse(data, target.url)
    open_kind(index.kind, index.options)
    _, files = find_files(target.place, index.kind, index.options)
    return _report(target, "checked", index, len(data), changes_since(index, files))


def parse_pairs(pairs: Sequence[str], flag: str, *, as_json: bool) -> dict[str, Any]:
    """Return `name=value` texts as a mapping; a value `as_json` if it is JSON, else the text.

    Raises `SchemaError` for what is no pair.

    Example:
        >>> parse_pairs(["header=false", "delimiter=;"], "--option", as_json=True)
        {'header': False, 'delimiter': ';'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not name or not mark:
            msg = f"{flag} takes name=value, came {name!r} without a value"
            raise SchemaError(msg)
        found[name] = _json_or_text(text) if as_json else text
    return found


class _Target(NamedTuple):
    """The data, and where its index is kept."""

    place: Place
    store: Store
    name: str
    is_beside: bool

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.name}"

    def get(self) -> bytes | None:
        """Return the index, None if there is none."""
        try:
            return self.store.get(self.name, max_bytes=MAX_SOURCE_INDEX_BYTES)
        except ObjectNotFoundError:
            return None

    def put(self, data: bytes) -> None:
        try:
            self.store.put(self.name, [data])
        except StoreError as error:
            hint = "; where data cannot be written to, add --out FILE" if self.is_beside else ""
            msg = f"the index cannot be written to {self.url}: {error}{hint}"
            kind = AccessDeniedError if isinstance(error, AccessDeniedError) else StoreError
            raise kind(msg) from error


def _target(url: str, settings: IndexSettings) -> _Target:
    place = place_of(url, settings.storage_options, kind=settings.format)
    if isinstance(place.store, LocalStore) and not place.store.exists():
        msg = f"{place.store.path} does not exist; give the folder, pattern or URL of the data"
        raise SchemaError(msg)
    if settings.out is None:
        return _Target(place, place.store, published_name(place.pattern), is_beside=True)
    folder, mark, name = settings.out.rpartition("/")
    if not name:
        msg = f"--out takes the name of a file, came {settings.out!r}"
        raise SchemaError(msg)
    is_url = "://" in settings.out
    store = open_store(
        folder or ("/" if mark else "."), settings.storage_options if is_url else None
    )
    return _Target(place, store, name, is_beside=False)


def _known(target: _Target) -> VirtualIndex | None:
    """Return the index that is there, if it can be used."""
    try:
        data = target.get()
        return None if data is None else parse(data, target.url)
    except (IndexInvalidError, AccessDeniedError):
        return None  # it is written anew


def _meant(
    settings: IndexSettings, known: VirtualIndex | None
) -> tuple[str | None, dict[str, Any]]:
    if known is None or settings.format not in {None, known.kind}:
        return settings.format, dict(settings.options)
    return known.kind, dict(settings.options or known.options)


def _report(
    target: _Target, action: str, index: VirtualIndex, size: int, changes: Changes
) -> IndexReport:
    return IndexReport(
        url=target.place.store.url,
        index=target.url,
        action=action,
        format=index.kind,
        num_files=index.num_files,
        num_units=len(index.files),
        num_rows=index.num_samples,
        num_bytes=int(index.sizes.sum()),
        unit_rows=spread_of(index.samples),
        unit_bytes=spread_of(index.nbytes),
        advice=layout_advice(index),
        index_bytes=size,
        added=changes.added,
        removed=changes.removed,
        replaced=changes.replaced,
    )


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - a JSON value
    try:
        return json.loads(text)
    except ValueError:
        return text
