"""What a user means by data that nobody converted, and how its files are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from streaming_core._store import open_store, public_url, with_timeout
from streaming_core._virtual import SourceFile, place_of
from streaming_core._virtual._discover import (
    find_files,
    find_hub_files,
    open_source,
    published_name,
)
from streaming_core._virtual._tables import dump as dump_plan
from streaming_core._virtual._tables import find_table, open_root
from streaming_core._virtual._tables import parse as parse_plan
from streaming_reader._reading import HUB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming_core._store import RequestPolicy, StorageOptions, Store
    from streaming_core._virtual import Place, VirtualIndex
    from streaming_core._virtual._tables import TablePlan
    from streaming_reader._reading import Reading
    from streaming_reader.stream import ResolvedStream

__all__ = ["IndexPlace", "Sought", "sought"]


class IndexPlace(NamedTuple):
    """Where an index is kept that no one here made."""

    store: Store
    name: str
    is_given: bool
    """Whether a user named it: then there is one."""

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.name}"


class Found(NamedTuple):
    """Files, and how they are read."""

    store: Store
    format: str
    options: Mapping[str, Any]
    files: list[SourceFile]


class Sought(NamedTuple):
    """What a user means, and how it is found."""

    name: str
    """For messages, without secrets."""
    told: list[object]
    """What of a user's words tells it from other data in the same folder; nothing secret."""
    format: str | None
    """What the user called it."""
    find: Callable[[RequestPolicy], Found]
    """Asks which files there are."""
    store: Callable[[VirtualIndex], Store]
    """Returns the store of an index that is known."""
    at: IndexPlace | None = None
    """Where an index may have been published."""
    pattern: str = ""
    """What the files' names match."""
    options: Mapping[str, Any] = {}
    """What the format takes."""

    def version(self, index: VirtualIndex) -> str:
        """Return which version of a table an index is of; nothing for files."""
        plan = index.options.get("plan")
        return "" if plan is None else xxhash.xxh3_128_hexdigest(plan)


def sought(stream: ResolvedStream, reading: Reading) -> Sought:
    """Return what a stream means; nothing is asked for yet."""
    source, options = stream.source or "", stream.storage_options
    shown, timeout = public_url(source), stream.settings.download_timeout
    if reading.is_table:
        kind, given = reading.format or "", reading.secret_options()

        def find_rows(policy: RequestPolicy) -> Found:
            plan = find_table(kind, source, given, policy)
            files = [SourceFile(file.key, file.size, "") for file in plan.files]
            return Found(root_of(plan), "table", {"plan": dump_plan(plan)}, files)

        def root_of(plan: TablePlan) -> Store:
            store = open_root(plan, kind, source, given, options)
            return with_timeout(store, timeout)

        def store_of(index: VirtualIndex) -> Store:
            return root_of(parse_plan(index.options["plan"], shown))

        told: list[object] = [kind, sorted(reading.plain_options().items(), key=str)]
        return Sought(shown, told, kind, find_rows, store_of)
    if reading.format == HUB:
        store = with_timeout(open_source(source, options), timeout)
        config, split = reading.options.get("config"), reading.options.get("split")

        def find_split(policy: RequestPolicy) -> Found:
            found = policy.call(lambda: find_hub_files(store, config, split))
            return Found(store, found.kind, {}, found.files)

        return Sought(shown, [HUB, config, split], HUB, find_split, _always(store))
    place = place_of(source, options, kind=reading.format)
    place = place._replace(store=with_timeout(place.store, timeout))

    def find(policy: RequestPolicy) -> Found:
        kind, files = policy.call(lambda: find_files(place, reading.format, reading.options))
        return Found(place.store, kind, reading.options, files)

    return Sought(
        place.url,
        [reading.format, sorted(reading.options.items()), reading.index],
        reading.format,
        find,
        _always(place.store),
        _index_place(place, reading.index, options),
        place.pattern,
        reading.options,
    )


def _always(store: Store) -> Callable[[VirtualIndex], Store]:
    def same(index: VirtualIndex) -> Store:
        del index
        return store

    return same


def _index_place(place: Place, given: str | None, options: StorageOptions | None) -> IndexPlace:
    if given is None:
        return IndexPlace(place.store, published_name(place.pattern), is_given=False)
    folder, mark, name = given.rpartition("/")
    store = open_store(folder or ("/" if mark else "."), options if "://" in given else None)
    return IndexPlace(store, name, is_given=True)
