"""What has become durable, so that a killed conversion can go on after it.

One small object per finished shard, put after the shard's own files, and one with the settings.
They lie in `.writing/` beside the shards and go away once the index is there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from streaming_core._store import LocalStore
from streaming_core._workers import in_order
from streaming_core.errors import ObjectNotFoundError, ResumeError
from streaming_writer._requests import put_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_core._store import Store

__all__ = ["JOURNAL", "SETTINGS", "Journal", "Retried", "ShardRecord"]

JOURNAL = ".writing"
SETTINGS = f"{JOURNAL}/settings.json"
_OPENED = f"{JOURNAL}/opened.json"
_SHARD = re.compile(rf"{re.escape(JOURNAL)}/(\d{{5,}})\.json")


_T = TypeVar("_T")


class Retried(Protocol):
    """Does something with a store, and again if a network fails."""

    def __call__(self, store: Store, act: Callable[[], _T], /) -> _T:
        """Return what `act` returns."""
        ...


def _once(_: Store, act: Callable[[], _T], /) -> _T:
    return act()


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A finished shard."""

    entry: dict[str, Any]
    """Its entry in the index."""
    sums: Mapping[str, str]
    """The hash of each of its files, by basename."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.entry["samples"])

    def files(self) -> dict[str, int]:
        """Return the size of each file that lies in the store, by basename."""
        entry = self.entry
        found: dict[str, int] = {}
        for role in ("data", "meta"):
            info = entry.get(f"zip_{role}") or entry.get(f"raw_{role}")
            if info:
                found[info["basename"]] = info["bytes"]
        return found


class Journal:
    """The journal of one output; threads may record shards side by side."""

    def __init__(self, store: Store, retried: Retried = _once) -> None:
        """Keep it in `store`, asking as often as `retried` does."""
        self._store = store
        self._retried = retried

    def settings(self) -> dict[str, Any] | None:
        """Return the settings of the unfinished conversion, or None if there is none."""
        try:
            data = self._get(SETTINGS)
        except ObjectNotFoundError:
            return None
        parsed = self._parse(SETTINGS, data)
        # Without columns they only say that somebody writes here, and not yet what.
        return parsed if "columns" in parsed else None

    def open(self) -> None:
        """Note that somebody writes here, before it is known what."""
        self._put(_OPENED, {})

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note with which settings the shards are written."""
        self._put(SETTINGS, settings)

    def record(self, number: int, shard: ShardRecord) -> None:
        """Note that shard `number` is durable."""
        self._put(f"{JOURNAL}/{number:05d}.json", {"entry": shard.entry, "sums": shard.sums})

    def numbers(self) -> list[int]:
        """Return the numbers of all shards noted, ascending."""
        listed = self._retried(self._store, lambda: list(self._store.list(f"{JOURNAL}/")))
        keys = [_SHARD.fullmatch(info.key) for info in listed]
        return sorted(int(match[1]) for match in keys if match)

    def read(self, number: int) -> ShardRecord:
        """Return the note on shard `number`; `ResumeError` if it cannot be read, or is gone."""
        key = f"{JOURNAL}/{number:05d}.json"
        try:
            noted = self._parse(key, self._get(key))
        except ObjectNotFoundError as error:  # a writer that ends removes its notes
            msg = f"{self._store.url}: the note {key} was removed after it was listed"
            raise ResumeError(msg) from error
        try:
            record = ShardRecord(dict(noted["entry"]), dict(noted["sums"]))
            # The note has its keys sorted; the files were written in the order of their roles.
            return replace(record, sums={name: record.sums[name] for name in record.files()})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            msg = f"{self._store.url}: the note {key} lacks its entry or its sums"
            raise ResumeError(msg) from error

    def read_all(self, numbers: Sequence[int]) -> list[ShardRecord | ResumeError]:
        """Return the notes on shards, or the error of a note that cannot be read in its place."""

        def read(number: int) -> ShardRecord | ResumeError:
            try:
                return self.read(number)
            except ResumeError as error:
                return error

        return list(in_order(read, numbers))

    def forget(self, numbers: Sequence[int]) -> None:
        """Remove the notes on shards; `numbers` ascend."""
        keys = [f"{JOURNAL}/{number:05d}.json" for number in numbers]
        # Without the first note none of the others counts, whatever becomes of them.
        for key in keys[:1]:
            self._delete(key)
        list(in_order(self._delete, keys[1:]))

    def end(self) -> None:
        """Remove everything, the settings last: they say that the rest is ours."""
        self.forget(self.numbers())
        self._delete(_OPENED)
        self._delete(SETTINGS)
        if isinstance(self._store, LocalStore):
            self._store.remove_empty(JOURNAL)

    def disown(self) -> None:
        """Remove the settings: without them the notes, and the shards, are of no conversion."""
        self._delete(SETTINGS)

    def _put(self, key: str, document: Mapping[str, Any]) -> None:
        data = json.dumps(document, sort_keys=True).encode()
        self._retried(self._store, partial(put_checked, self._store, key, [data]))

    def _get(self, key: str) -> bytes:
        return self._retried(self._store, partial(self._store.get, key))

    def _delete(self, key: str) -> None:
        self._retried(self._store, partial(self._store.delete, key))

    def _parse(self, key: str, data: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(data)
        except ValueError as error:
            msg = (
                f"{self._store.url}: the note {key} on the unfinished conversion is broken: {error}"
            )
            raise ResumeError(msg) from error
        return dict(parsed)
