"""What has become durable, so that a killed conversion can go on after it.

One small object per finished shard, put after the shard's own files, and one with the settings.
They lie in `.writing/` beside the shards and go away once the index is there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming_core._store import LocalStore
from streaming_core.errors import ObjectNotFoundError, ResumeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store import Store

__all__ = ["JOURNAL", "Journal", "ShardRecord"]

JOURNAL = ".writing"
_SETTINGS = f"{JOURNAL}/settings.json"
_SHARD = re.compile(rf"{re.escape(JOURNAL)}/(\d{{5,}})\.json")


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A finished shard."""

    entry: Mapping[str, Any]
    """Its entry in the index."""
    sums: Mapping[str, str] = field(default_factory=dict)
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

    def __init__(self, store: Store) -> None:
        """Keep it in `store`."""
        self._store = store

    def settings(self) -> dict[str, Any] | None:
        """Return the settings of the unfinished conversion, or None if there is none."""
        try:
            data = self._store.get(_SETTINGS)
        except ObjectNotFoundError:
            return None
        return self._parse(_SETTINGS, data)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note with which settings the shards are written."""
        self._store.put(_SETTINGS, [json.dumps(settings, sort_keys=True).encode()])

    def record(self, number: int, shard: ShardRecord) -> None:
        """Note that shard `number` is durable."""
        data = json.dumps({"entry": shard.entry, "sums": shard.sums}, sort_keys=True).encode()
        self._store.put(f"{JOURNAL}/{number:05d}.json", [data])

    def numbers(self) -> list[int]:
        """Return the numbers of all shards noted, ascending."""
        keys = [_SHARD.fullmatch(info.key) for info in self._store.list(f"{JOURNAL}/")]
        return sorted(int(match[1]) for match in keys if match)

    def read(self, number: int) -> ShardRecord:
        """Return the note on shard `number`."""
        key = f"{JOURNAL}/{number:05d}.json"
        noted = self._parse(key, self._store.get(key))
        return ShardRecord(noted["entry"], noted["sums"])

    def forget(self, number: int) -> None:
        """Remove the note on shard `number`."""
        self._store.delete(f"{JOURNAL}/{number:05d}.json")

    def end(self) -> None:
        """Remove everything, the settings last: they say that the rest is ours."""
        for number in self.numbers():
            self.forget(number)
        self._store.delete(_SETTINGS)
        if isinstance(self._store, LocalStore):
            self._store.remove_empty(JOURNAL)

    def disown(self) -> None:
        """Remove the settings: without them the notes, and the shards, are of no conversion."""
        self._store.delete(_SETTINGS)

    def _parse(self, key: str, data: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(data)
        except ValueError as error:
            msg = (
                f"{self._store.url}: the note {key} on the unfinished conversion is broken: {error}"
            )
            raise ResumeError(msg) from error
        return dict(parsed)
