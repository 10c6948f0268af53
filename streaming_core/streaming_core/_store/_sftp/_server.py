"""One server under one identity, and this process's connections to it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streaming_core._store._sftp._connect import Link, RefusedError, connected

if TYPE_CHECKING:
    from collections.abc import Generator

    from streaming_core._store._sftp._place import Place, Says
    from streaming_core._store._sftp._session import Session

__all__ = ["Server"]

_MOST_IDLE: Final = 4
_MOST_AT_THE_DOOR: Final = 4
"""Servers turn strangers away at random when ten knock at once."""
_DOUBTFUL_SECONDS: Final = 15.0
"""A connection that nobody used for so long is asked whether it still works."""


class Server:
    """Connections to one server; picklable, and fit for any number of threads and forks."""

    __slots__ = ("__weakref__", "_door", "_guard", "_idle", "_says", "place", "swept")

    def __init__(self, place: Place, says: Says) -> None:
        self.place = place
        self._says = says
        self._idle: list[Link] = []
        self._start()
        weakref.finalize(self, _hang_up, self._idle)
        _servers.add(self)

    def _start(self) -> None:
        self._guard = threading.Lock()
        self._door = threading.BoundedSemaphore(_MOST_AT_THE_DOOR)
        self.swept: set[bytes] = set()
        """Folders where this process has looked for what dead writers left."""

    def __reduce__(self) -> tuple[type[Server], tuple[Place, Says]]:
        return Server, (self.place, self._says)

    def forked(self) -> None:
        """Begin anew in a forked child."""
        self._idle.clear()
        self._start()

    @contextmanager
    def session(self, stall: float) -> Generator[Session]:
        """Lend a conversation that fails when nothing comes for `stall` seconds.

        It is kept for the next one if it ends in order.
        """
        link = self._take() or self._new()
        process = os.getpid()
        try:
            link.wait(stall)
            yield link.session
        finally:
            if process == os.getpid():
                self._give(link)

    def _take(self) -> Link | None:
        while True:
            with self._guard:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if link.is_usable and (
                time.monotonic() - link.used < _DOUBTFUL_SECONDS or link.answers()
            ):
                return link
            _close(link)

    def _give(self, link: Link) -> None:
        if link.is_usable:
            link.used = time.monotonic()
            with self._guard:
                if len(self._idle) < _MOST_IDLE:
                    self._idle.append(link)
                    return
        _close(link)

    def _new(self) -> Link:
        with self._door:
            link = self._take()  # one may have come back while we waited
            if link is not None:
                return link
            since = self._says.renewals
            try:
                link = connected(self.place, self._says.login())
            except RefusedError:
                if not self._says.renew(since):
                    raise
                link = connected(self.place, self._says.login())
            _live.add(link)
            return link


_servers: weakref.WeakSet[Server] = weakref.WeakSet()
_live: set[Link] = set()
"""The connections of this process."""
_inherited: list[Link] = []
"""Those of its parents. They are kept because collecting them would send words of farewell."""


def _close(link: Link) -> None:
    _live.discard(link)
    link.close()


def _hang_up(links: list[Link]) -> None:
    while links:
        _close(links.pop())


def _forked() -> None:
    for link in _live:
        link.disown()
    _inherited.extend(_live)
    _live.clear()
    for server in _servers:
        server.forked()


os.register_at_fork(after_in_child=_forked)
