"""Who writes to a store, where no lock dies with its owner: a note that only one can create."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming_core._store import LocalStore
from streaming_core.errors import AlreadyExistsError, ObjectNotFoundError, OutputBusyError
from streaming_writer._journal import SETTINGS
from streaming_writer._requests import put_checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._store import Store
    from streaming_writer._journal import Retried

__all__ = ["WRITER", "Ownership"]

WRITER = "writer"
"""The name in the settings under which a writer says who it is."""
_SHARE = 5
"""For how many times as long as it took a look holds good: many small shards share one."""
_LONGEST_SECONDS = 1.0
"""A look that took long holds good no longer than this."""
_WAYS = "wait until it has finished, stop it, or write to another place"


class Ownership:
    """The right of one writer to its stores that are no folders; these have locks.

    The settings in the journal say whose it is. They are created only, unless what they say is gone
    on with; whoever deletes or replaces them has taken the place over, and the writer before finds
    that out by looking. Between a look and the put after it another may still take the place over,
    and where a store cannot create only, two that begin at the same moment may both believe in
    themselves, until the first of them looks again.
    """

    def __init__(self, stores: Sequence[Store], retried: Retried) -> None:
        """Own nothing yet, of `stores`, the first of which keeps the journal."""
        self._first = stores[0]
        self.stores = [store for store in stores if not isinstance(store, LocalStore)]
        self._retried = retried
        self._id = secrets.token_hex(16)
        self.held = False
        self._good_until = 0.0

    def take(self, settings: Mapping[str, Any], *, over: bool) -> None:
        """Note who writes, and in the journal with which settings.

        `OutputBusyError` if somebody else has done so since this writer looked; with `over` that is
        the one whose work this one goes on with, so it does not hinder.
        """
        replaces = over or self.held
        self.check()
        self.held = True
        for store in self.stores:
            document = dict(settings) if store is self._first else {}
            data = json.dumps({**document, WRITER: self._id}, sort_keys=True).encode()
            if replaces:
                self._retried(store, partial(put_checked, store, SETTINGS, [data]))
            else:
                self._create(store, data)

    def _create(self, store: Store, data: bytes) -> None:
        tries = 0

        def act() -> None:
            nonlocal tries
            tries += 1
            # A try that failed may have left the note, or a part of it.
            mine = tries > 1 and self._left_by_us(store)
            try:
                put_checked(store, SETTINGS, [data], if_absent=not mine)
            except AlreadyExistsError as error:
                if self._noted(store) == self._id:  # the store asked twice, unseen
                    return
                msg = f"{store.url}: another writer has begun here at the same moment; {_WAYS}"
                raise OutputBusyError(msg) from error

        self._retried(store, act)

    def _left_by_us(self, store: Store) -> bool:
        try:
            return self._noted(store) in {self._id, None}
        except ObjectNotFoundError:
            return False

    def _noted(self, store: Store) -> str | None:
        """Return whose the store is, or None if the note is torn."""
        try:
            return str(json.loads(store.get(SETTINGS)).get(WRITER, ""))
        except (ValueError, AttributeError):
            return None

    def look(self) -> None:
        """Do as `check`, unless that was done just now."""
        if time.monotonic() > self._good_until:
            self.check()

    def check(self) -> None:
        """Raise `OutputBusyError` if another writer has taken the place over."""
        began = time.monotonic()
        for store in self.stores if self.held else ():
            try:
                owner = self._retried(store, partial(self._noted, store))
            except ObjectNotFoundError:
                owner = None
            if owner != self._id:
                msg = (
                    f"{store.url}: another writer has taken this place over, or its journal was "
                    "deleted, while this writer was at work; it stops, and leaves what is there as "
                    "it is. Have one writer at a time, or give each a place of its own"
                )
                raise OutputBusyError(msg)
        took = time.monotonic() - began
        self._good_until = began + min(_SHARE * took, _LONGEST_SECONDS)

    def withdraw(self) -> None:
        """Delete a note of ours that nothing was written under."""
        for store in self.stores if self.held else ():
            with contextlib.suppress(ObjectNotFoundError):
                if self._retried(store, partial(self._noted, store)) == self._id:
                    self._retried(store, partial(store.delete, SETTINGS))
        self.held = False
