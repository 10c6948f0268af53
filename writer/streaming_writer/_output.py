"""Where a data set is written: one or two stores, of which the first keeps the journal."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from streaming_core._arguments import checked, unexpected
from streaming_core._store import LOCK_NAME, Buffer, LocalStore, RequestPolicy, Store, open_store
from streaming_core._store._abilities import abort_uploads
from streaming_core._store._os_errors import mapped_errors
from streaming_core._workers import in_order
from streaming_core.errors import (
    ObjectNotFoundError,
    OutputBusyError,
    OutputNotEmptyError,
    StoreError,
)
from streaming_writer._journal import SETTINGS, Journal
from streaming_writer._ownership import Ownership
from streaming_writer._requests import put_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_core._store import StorageOptions

__all__ = ["INDEX", "Output", "Target", "resolve_targets"]

INDEX = "index.json"
Target = str | os.PathLike[str] | tuple[str | os.PathLike[str], str | os.PathLike[str]]
"""A folder or URL, or a folder and a URL to write to both."""

_T = TypeVar("_T")
_log = logging.getLogger("streaming_core.writer")
_SHARDS = "shard."
"""What the names of shards begin with; other parts of the data set lie in folders of their own."""
_FIRST_PAUSE_SECONDS = 0.5
_BUSY_SECONDS = 180.0
"""How long a store may refuse a request because it is busy until that is an error."""


def resolve_targets(
    out: Target,
    *,
    keep_local: bool,
    part: int | str | None,
    storage_options: StorageOptions | None = None,
) -> list[Store]:
    """Return the stores to write to: the local folder, if it is kept, then the remote one.

    `out` is a folder, a URL, or a pair (folder, URL). A shard goes to a remote store from memory,
    so a local folder is only touched where its copy stays. `storage_options` are the URL's.
    """
    if isinstance(out, tuple):
        if len(out) != 2:  # noqa: PLR2004 - a pair
            raise unexpected(out, "out", "a folder or URL, or a pair (folder, URL)")
        folder, url = (checked({"out": each})["out"] for each in out)
        stores = [open_store(url, storage_options)]
        if keep_local:
            stores.insert(0, open_store(folder))
    else:
        stores = [open_store(checked({"out": out})["out"], storage_options)]
        if keep_local and not isinstance(stores[0], LocalStore):
            stores.insert(0, open_store(tempfile.mkdtemp(prefix="streaming-")))
    if part is None:
        return stores
    name = part if isinstance(part, str) else f"part-{part:05d}"
    return [store.child(name) for store in stores]


class Output:
    """The stores of one writer, with one policy for requests.

    Threads may put side by side.
    """

    def __init__(self, stores: Sequence[Store], *, retry: int) -> None:
        """Try each put up to `retry` times, at least once."""
        self.stores = tuple(stores)
        self._over = False
        self._policy = RequestPolicy(
            retry,
            busy=_BUSY_SECONDS,
            first_pause=_FIRST_PAUSE_SECONDS,
            stop=lambda: self._over,
        )
        self.ownership = Ownership(self.stores, self._retried)

    @property
    def first(self) -> Store:
        """The store that keeps the journal."""
        return self.stores[0]

    @property
    def journal(self) -> Journal:
        """The journal in the first store."""
        return Journal(self.first, self._retried)

    @property
    def local(self) -> Path | None:
        """The folder written to, or None if all is remote."""
        return next((store.path for store in self.stores if isinstance(store, LocalStore)), None)

    @property
    def remote(self) -> str | None:
        """The place that is written to beside or instead of a folder, or None."""
        last = self.stores[-1]
        return None if len(self.stores) == 1 and isinstance(last, LocalStore) else last.url

    def put(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Publish an object in every store, unless another writer has taken the place over."""
        for store in self.stores:
            self.ownership.look()
            self._retried(store, partial(put_checked, store, key, buffers))

    def conclude(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Publish what says that all is done, in the first store last.

        A later writer looks at the first store: what is done there must be done everywhere. Nothing
        is put, at no try, once another writer has taken the place over.
        """

        def act(store: Store) -> None:
            self.ownership.check()
            put_checked(store, key, buffers)

        for store in reversed(self.stores):
            self._retried(store, partial(act, store))

    def end_published(self, key: str, data: bytes) -> None:
        """Remove the journal after `data`, which says that all is done, was published as `key`.

        Another writer may have taken the place over in the last moment. If it found all done, it
        tidies up; if it deleted what was done, `OutputBusyError` is raised.
        """
        try:
            self.ownership.check()
        except OutputBusyError:
            try:
                found = self._retried(self.first, partial(self.first.get, key))
            except ObjectNotFoundError:
                found = b""
            if found != data:
                raise
        else:
            self.end()

    def end(self) -> None:
        """Remove the journal, and the notes on who writes beside it."""
        for store in self.stores[1:]:
            if not isinstance(store, LocalStore):
                self._delete_from(store, SETTINGS)
        self.journal.end()

    def others(self) -> list[tuple[Store, list[str]]]:
        """Return the stores beside the first, each with what it holds."""
        return [(store, list(self._listed(store))) for store in self.stores[1:]]

    def mirror(self, key: str) -> None:
        """Give the other stores the object that the first one has."""
        if len(self.stores) > 1:
            data = self._retried(self.first, partial(self.first.get, key))
            for store in self.stores[1:]:
                self._retried(store, partial(put_checked, store, key, [data]))

    def delete(self, *keys: str) -> None:
        """Remove objects from every store, several at a time."""
        for store in self.stores:
            list(in_order(partial(self._delete_from, store), keys))

    def _delete_from(self, store: Store, key: str) -> None:
        self._retried(store, partial(store.delete, key))

    def sizes(self, *, prefix: str) -> list[dict[str, int]]:
        """Return, for each store, the size of every object whose key starts with `prefix`."""
        return [self._listed(store, prefix) for store in self.stores]

    def check(self, files: Mapping[str, int], *, prefix: str) -> None:
        """Raise `StoreError` unless every store has all files, each of its size.

        All their names start with `prefix`; a listing spares a request for each file.
        """
        for store, sizes in zip(self.stores, self.sizes(prefix=prefix), strict=True):
            bad = [name for name, size in files.items() if sizes.get(name) != size]
            if bad:
                msg = (
                    f"{store.url}: {len(bad)} of {len(files)} files, {bad[0]!r} the first, were "
                    "removed or changed while the data set was written; no index is published. "
                    "Keep others away, and write again with resume=True"
                )
                raise StoreError(msg)

    def _listed(self, store: Store, prefix: str = "") -> dict[str, int]:
        """Return the size of each object by key."""
        return self._retried(store, lambda: {info.key: info.size for info in store.list(prefix)})

    def _retried(self, store: Store, act: Callable[[], _T]) -> _T:
        if isinstance(store, LocalStore):  # a full or broken disk does not get better by asking
            return act()
        return self._policy.call(act)

    def give_up(self) -> None:
        """Let no pause between two tries last any longer."""
        self._over = True

    def forget_uploads(self) -> None:
        """Remove the parts that a killed writer left of shards it was sending."""
        for store in self.stores:
            try:
                abort_uploads(store, _SHARDS)
            except StoreError as error:  # they cost money, but hinder nobody
                _log.warning("parts of unfinished uploads may be left: %s", error)

    def keys(self, store: Store | None = None) -> list[str]:
        """Return what a store holds, the first one if none is given."""
        return list(self._listed(store or self.first))

    def clear(self) -> None:
        """Remove everything, the indexes first, so that no reader meets half a data set."""
        for store in self.stores:
            self._refuse_dangerous(store)
            self._retried(store, partial(store.delete, INDEX))
            # From here on nobody takes what is left for something to go on with.
            Journal(store, self._retried).disown()
            if isinstance(store, LocalStore):
                with mapped_errors(store.url, "", "clear"):
                    _empty_folder(store.path)
            else:
                list(in_order(partial(self._delete_from, store), self._listed(store)))
        self.forget_uploads()

    @staticmethod
    def _refuse_dangerous(store: Store) -> None:
        if not isinstance(store, LocalStore):
            return
        path = Path(os.path.realpath(store.path))
        home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - there may be none
        if path in {Path(path.anchor), home, Path.cwd(), *Path.cwd().parents}:
            msg = (
                f"{path}: exist_ok=True would delete everything in it, and it is the root, your "
                "home or the folder this program runs in; give a folder of its own"
            )
            raise OutputNotEmptyError(msg)


def _empty_folder(path: Path) -> None:
    if not path.is_dir():
        return
    for child in path.iterdir():
        if child.name == LOCK_NAME:  # ours, where the folder itself cannot be locked
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
