"""An event loop in a thread of its own, that serves connections on one port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

__all__ = ["Listening", "Serve"]

_SECONDS: Final = 60.0
_STREAM_BYTES: Final = 1 << 18
_ROUNDS: Final = 5

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """Calls `serve` with each connection to 127.0.0.1:`port`, from now until `stop`."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.port = 0
        """Where it listens; the same all the time."""
        self.open()

    def open(self) -> None:
        """Take connections, again if it had been closed."""
        self._do(self._opened())

    def close(self) -> None:
        """Refuse connections from now on, and end those that are open."""
        self._do(self._closed())

    def stop(self) -> None:
        """End it all; what is left of a connection's task after a minute is left alone."""
        self.close()
        self._do(self._emptied())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    def _do(self, act: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(act, self._loop).result(_SECONDS)

    async def _opened(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, limit=_STREAM_BYTES, backlog=256
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _closed(self) -> None:
        if self._server is not None:
            # A server that is closed cannot take what was accepted a moment before.
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())
        for _ in range(_ROUNDS):  # what was accepted becomes a task of ours
            await asyncio.sleep(0)
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _emptied(self) -> None:
        """End whatever is left, and let closed sockets be closed."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            # This is how connections end here; the stream's own task would report it.
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()
