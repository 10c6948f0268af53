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

    from streaming_core._store import StorageOptions, Store
    from streaming_core._virtual import Place, VirtualIndex
    from streaming_reader._reading import Reading
    from streaming_reader.stream import Stream

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


class Sought(NamedTuple):
    """What a user means, and how it is found."""

    name: str
    """For messages, without secrets."""
    told: list[object]
    """What of a user's words tells it from other data in the same folder; nothing secret."""
    format: str | None
    """What the user called it."""
    find: Callable[[], tuple[Store, str, Mapping[str, Any], list[SourceFile]]]
    """Returns the store, format and options of the files, and these."""
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


def sought(stream: Stream, reading: Reading) -> Sought:
    """Return what a stream means; nothing is asked for yet."""
    source, options = stream.source or "", stream.storage_options
    shown = public_url(source)
    if reading.is_table:
        kind, given = reading.format or "", reading.secret_options()

        def find_rows() -> tuple[Store, str, Mapping[str, Any], list[SourceFile]]:
            plan = find_table(kind, source, given)
            files = [SourceFile(file.key, file.size, "") for file in plan.files]
            store = open_root(plan, kind, source, given, options)
            return store, "table", {"plan": dump_plan(plan)}, files

        def store_of(index: VirtualIndex) -> Store:
            plan = parse_plan(index.options["plan"], shown)
            return open_root(plan, kind, source, given, options)

        told: list[object] = [kind, sorted(reading.plain_options().items(), key=str)]
        return Sought(shown, told, kind, find_rows, store_of)
    if reading.format == HUB:
        store = with_timeout(open_source(source, options), stream.settings.download_timeout)
        config, split = reading.options.get("config"), reading.options.get("split")

        def find_split() -> tuple[Store, str, Mapping[str, Any], list[SourceFile]]:
            found = find_hub_files(store, config, split)
            return store, found.kind, {}, found.files

        return Sought(shown, [HUB, config, split], HUB, find_split, _always(store))
    place = place_of(source, options, kind=reading.format)
    place = place._replace(store=with_timeout(place.store, stream.settings.download_timeout))

    def find() -> tuple[Store, str, Mapping[str, Any], list[SourceFile]]:
        kind, files = find_files(place, reading.format, reading.options)
        return place.store, kind, reading.options, files

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
