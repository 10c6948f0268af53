"""A store that fails as scripted, and remembers what it was asked."""

from __future__ import annotations

import builtins
import copy
import os
import signal
from contextlib import closing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from streaming_core._store import Parts
from streaming_core.errors import StoreError
from streaming_core.testing._faults import (
    Call,
    Delay,
    Die,
    Fault,
    FlipBit,
    Kill,
    LoseResponse,
    Raise,
    Script,
    Truncate,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from streaming_core._store import Buffer, ByteRange, ObjectInfo, Store
    from streaming_core.testing._faults import Action, Verb

__all__ = ["FaultStore"]


class FaultStore:
    """Another store whose calls go wrong as the faults say, and are recorded in `calls`.

    All faults that match a call happen to it, in the order given. A child shares the script, the
    counts and the record. Threads may share a store; a pickled copy, and a forked child, counts
    on by itself.

    Example:
        >>> from streaming_core.testing import Fault, MemoryStore, Truncate
        >>> store = FaultStore(MemoryStore(), [Fault(Truncate(4), verb="get", nth=2)])
        >>> _ = store.put("a", [b"whole body"])
        >>> store.get("a"), store.get("a"), store.get("a")
        (b'whole body', b'whol', b'whole body')
        >>> store.count("get"), store.calls[0]
        (3, Call(verb='put', key='a'))
    """

    def __init__(self, inner: Store, faults: Iterable[Fault] = ()) -> None:
        self._inner = inner
        self._script = Script(faults)
        self._prefix = ""

    @property
    def inner(self) -> Store:
        """The store that does the work."""
        return self._inner

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self._inner.url

    @property
    def calls(self) -> builtins.list[Call]:
        """A copy of the record: every request so far, in order, with keys from the first store."""
        return self._script.calls.copy()

    def count(self, verb: Verb | None = None, key: str = "*") -> int:
        """Return how many requests had this verb (None: any) and a key like the pattern."""
        return sum(
            verb in {None, call.verb} and fnmatchcase(call.key, key) for call in self._script.calls
        )

    def wake(self) -> None:
        """End every `Delay`, those to come too."""
        self._script.awake.set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r}, {builtins.list(self._script.faults)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FaultStore):
            return NotImplemented
        return self._inner == other._inner and self._script.faults == other._script.faults

    def __hash__(self) -> int:
        return hash((FaultStore, self._inner))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the inner store's object, unless a fault says otherwise."""
        actions = self._enter("get", key)
        data = _damaged(self._inner.get(key, max_bytes=max_bytes), actions)
        self._leave("get", key, actions)
        return data

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the inner store's ranges, unless a fault says otherwise."""
        actions = self._enter("get_ranges", key)
        found = self._inner.get_ranges(key, ranges)
        cuts = [action for action in actions if not isinstance(action, FlipBit)]
        parts = [_damaged(part, cuts if number else actions) for number, part in enumerate(found)]
        self._leave("get_ranges", key, actions)
        return Parts(parts, found.etag)

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the inner store's pieces, unless a fault says otherwise.

        It is recorded, and delays and errors happen, when the first piece is asked for.
        """
        actions = self._enter("stream", key)
        flips = [action.bit for action in actions if isinstance(action, FlipBit)]
        bits = 8 * self._inner.head(key).size if flips else 0
        flips = [bit % bits for bit in flips] if bits else []
        at = start
        with closing(self._inner.stream(key, start=start, max_bytes=max_bytes)) as pieces:
            for piece in pieces:
                end = _stream_end(actions, start)
                body = _flipped(piece, at, flips)[: None if end is None else max(end - at, 0)]
                at += len(body)
                if len(body):
                    yield body
                if len(body) < len(piece):
                    break
        self._break(key, at - start, actions)
        self._leave("stream", key, actions)

    def head(self, key: str) -> ObjectInfo:
        """Return what the inner store knows, unless a fault says otherwise."""
        actions = self._enter("head", key)
        info = self._inner.head(key)
        self._leave("head", key, actions)
        return info

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Return the inner store's listing; a fault happens at the call, not while it is read."""
        actions = self._enter("list", prefix)
        listing = self._inner.list(prefix)
        self._leave("list", prefix, actions)
        return listing

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Put into the inner store, unless a fault says otherwise."""
        actions = self._enter("put", key)
        for action in actions:
            if isinstance(action, Die):
                self._die(key, buffers, action)
        if any(isinstance(action, (Truncate, FlipBit)) for action in actions):
            buffers = [_damaged(_joined(buffers), actions)]
        info = self._inner.put(key, buffers, if_absent=if_absent)
        self._leave("put", key, actions)
        return info

    def delete(self, key: str) -> None:
        """Delete from the inner store, unless a fault says otherwise."""
        actions = self._enter("delete", key)
        self._inner.delete(key)
        self._leave("delete", key, actions)

    def child(self, prefix: str) -> FaultStore:
        """Return the inner store's child under the same script; nothing is requested."""
        store = FaultStore(self._inner.child(prefix))
        store._script = self._script
        store._prefix = f"{self._prefix}{prefix}/"
        return store

    def _enter(self, verb: Verb, key: str) -> tuple[Action, ...]:
        """Record the call and do what comes before the inner store is asked."""
        actions = self._script.enter(Call(verb, self._prefix + key))
        for action in actions:
            if isinstance(action, Delay):
                self._script.awake.wait(action.seconds)
            elif isinstance(action, Raise):
                raise copy.copy(
                    action.error
                )  # a raised error keeps its traceback: not to be shared
            elif isinstance(action, Kill) and not action.after:
                _kill()
        return actions

    def _leave(self, verb: Verb, key: str, actions: Sequence[Action]) -> None:
        """Do what comes after the inner store has answered."""
        for action in actions:
            if isinstance(action, Kill):
                _kill()
            elif isinstance(action, LoseResponse):
                msg = (
                    f"{verb} {key!r} in {self.url}: the response was lost (scripted fault); the "
                    "store has done its part"
                )
                raise StoreError(msg)

    def _break(self, key: str, num_bytes: int, actions: Sequence[Action]) -> None:
        """End a stream by an error if it was scripted to break."""
        if any(isinstance(action, Die) for action in actions):
            msg = (
                f"stream {key!r} in {self.url}: the connection broke after {num_bytes} bytes "
                "(scripted fault)"
            )
            raise StoreError(msg)

    def _die(self, key: str, buffers: Sequence[Buffer], action: Die) -> None:
        body = _joined(buffers)[: action.num_bytes]
        if action.leaves_partial:
            self._inner.put(key, [body])
        msg = (
            f"put {key!r} in {self.url}: the connection broke after {len(body)} bytes "
            "(scripted fault)"
        )
        raise StoreError(msg)


def _joined(buffers: Iterable[Buffer]) -> bytes:
    return b"".join(memoryview(buffer).tobytes() for buffer in buffers)


def _stream_end(actions: Iterable[Action], start: int) -> int | None:
    """Return the byte of the object at which a stream from `start` on ends early, or None."""
    cuts = [action.num_bytes for action in actions if isinstance(action, (Truncate, Die))]
    return start + min(cuts) if cuts else None


def _flipped(piece: memoryview, at: int, bits: Iterable[int]) -> memoryview:
    """Return the piece that begins at byte `at` of its object, with those bits of it flipped."""
    body = bytearray(piece)
    for bit in bits:
        if at <= bit // 8 < at + len(body):
            body[bit // 8 - at] ^= 1 << bit % 8
    return memoryview(body).toreadonly()


def _damaged(body: bytes, actions: Iterable[Action]) -> bytes:
    """Return the body with every cut and flip applied, in order."""
    for action in actions:
        if isinstance(action, Truncate):
            body = body[: action.num_bytes]
        elif isinstance(action, FlipBit) and body:
            byte, bit = divmod(action.bit % (len(body) * 8), 8)
            body = body[:byte] + bytes([body[byte] ^ (1 << bit)]) + body[byte + 1 :]
    return body


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
