"""Requests over kept connections: the one place of the project that speaks HTTP.

Nothing is tried twice here, but for a kept connection that the server had closed meanwhile, and
nothing is understood of what stores say; both is for those above. What fails raises `OSError` or
`http.client.HTTPException`, or `WireError` where the other side breaks its word.
"""

from __future__ import annotations

import fcntl
import http.client
import re
import select
import ssl
import sys
import termios
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from streaming_core._store._http._connections import (
    Connection,
    Key,
    Origin,
    Timeouts,
    UntrustedError,
    basic,
    connected,
    is_local,
    kept,
    key_of,
    proxy_headers,
    through_proxy,
)
from streaming_core._store._http._incoming import Chunks, Head, NoAnswerError, WireError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = [
    "FAILURES",
    "Answer",
    "Origin",
    "Request",
    "Timeouts",
    "UntrustedError",
    "WireError",
    "basic",
    "exchange",
    "is_local",
    "key_of",
]

_SEND_BYTES: Final = 1 << 20
_READ_BYTES: Final = 64 << 20
"""Room that is made for a body before it comes; an announced length may be a lie."""
_BROKEN: Final = (
    BrokenPipeError,
    ConnectionAbortedError,
    ConnectionResetError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)
_GONE: Final = (*_BROKEN, NoAnswerError)
_NO_BODY: Final = frozenset({204, 304})
_READS: Final = frozenset({"GET", "HEAD"})
_WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})
_CHUNKED: Final = "chunked"
_FORMS: Final = frozenset({_CHUNKED, "identity"})
_TARGET: Final = re.compile(r"[!-~]+", re.ASCII)
_SIGNED: Final = re.compile(r"(AWS4-HMAC-SHA256|GOOG4-HMAC-SHA256|SharedKey|Signature) ")
_SHARED_ACCESS: Final = re.compile(r"[?&]sig=")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_BAD_IN_VALUES: Final = re.compile(r"[\r\n\0\u0100-\U0010ffff]")
"""What ends a line, and what is no Latin-1."""
_BAD_CHARACTERS: Final = "{} has characters that no request may have; nothing was sent"

FAILURES: Final = (OSError, http.client.HTTPException)
"""All that `exchange` and `Answer` raise."""


class Request(NamedTuple):
    """What to send."""

    method: str
    origin: Origin
    target: str
    """Path and query, percent-encoded."""
    headers: Mapping[str, str]
    """All but `Host` and `Content-Length`, which are added."""
    body: Sequence[memoryview] = ()
    """Views of bytes, sent one after the other."""
    once: bool = False
    """Whether it must not reach the server twice."""
    timeouts: Timeouts = Timeouts()
    """How long to wait."""
    ca_file: str | None = None
    """A file of certificates to trust instead of the system's."""
    allow_http: bool = False
    """Whether what proves who we are may be sent to another machine without TLS."""
    secret_headers: Collection[str] = ()
    """Names of headers that are secret, besides `Authorization`."""


class Answer:
    """What came back: status and headers at once, the body as it is asked for.

    Close it, or use it with `with`; a body that was read to its end leaves the connection to the
    next request.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_incoming",
        "_key",
        "_left",
        "_stays",
        "headers",
        "status",
    )

    def __init__(self, connection: Connection, head: Head, key: Key, *, bodyless: bool) -> None:
        """Raise `WireError` if the head contradicts itself; the connection is the caller's then."""
        if len(head.lengths) > 1:
            msg = "the answer has two Content-Lengths"
            raise WireError(msg)
        self._connection: Connection | None = connection
        self._incoming = connection.incoming
        self._key = key
        self.status = head.status
        """The status code."""
        self.headers = head.headers
        """By name in small letters."""
        self._stays = head.stays
        self._left: int | None = self.length
        """Bytes that are to come; None if the server does not say."""
        self._chunks: Chunks | None = None
        if bodyless or self.status in _NO_BODY:
            self._left = 0
        elif _is_chunked(self.headers.get("transfer-encoding", "")):
            self._chunks = Chunks(self._incoming)
        elif self._left is None:
            self._stays = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def length(self) -> int | None:
        """The size of the body (for HEAD, that it would have); None if the server does not say."""
        text = self.headers.get("content-length")
        return None if text is None or "transfer-encoding" in self.headers else int(text)

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of `view` with what is there, at least one byte; 0 at the end.

        Raises `WireError` if the body ends before its announced length.
        """
        if self._left == 0 or not len(view):
            return 0
        if self._chunks is not None:
            count = self._chunks.readinto(view)
            if self._chunks.is_over:
                self._left = 0
            return count
        if self._left is None:
            return self._incoming.readinto(view)
        count = self._incoming.readinto(view[: self._left])
        if not count:
            msg = f"the body ended {self._left} bytes before its announced end"
            raise WireError(msg)
        self._left -= count
        return count

    def read(self, most: int) -> bytes:
        """Return the body, or its first `most` bytes."""
        here = b""
        if self._left is not None and self._chunks is None:
            most = min(most, self._left)
            here = self._incoming.ready(most)
            self._left -= len(here)
            if len(here) == most:
                return here
        out = bytearray(min(most, 1 << 16 if self._left is None else most, _READ_BYTES))
        filled = len(here)
        out[:filled] = here
        while filled < most:
            if filled == len(out):
                if self._left == 0:
                    break
                out += bytes(min(most - filled, max(1 << 16, len(out))))
            count = self.readinto(memoryview(out)[filled:])
            if not count:
                break
            filled += count
        return bytes(memoryview(out)[:filled])

    def close(self) -> None:
        """Give the connection back, or up if there is more to come on it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._left == 0 and self._stays and self._incoming.is_empty:
            kept.give(self._key, connection)
        else:
            connection.close()


def _is_chunked(said: str) -> bool:
    """Tell how a body comes; raises `WireError` for forms that nobody asked for."""
    if said and said.lower() not in _FORMS:
        msg = f"the body comes in a form that nobody asked for: {said[:40]!r}"
        raise WireError(msg)
    return said.lower() == _CHUNKED


def exchange(request: Request) -> Answer:
    """Send a request and return the answer, whatever its status; raises `FAILURES`."""
    key = key_of(request.origin, request.ca_file)
    _check_secrets(request, key)
    connection = None if request.once else kept.take(key)
    reused = connection is not None
    while True:
        if connection is None:
            connection = connected(key, request.timeouts)
        connection.socket.settimeout(request.timeouts.stall)
        connection.incoming.expect(request.timeouts.stall)
        try:
            return _answered(connection, key, request)
        except _GONE:
            connection.close()
            if not reused:
                raise
        except BaseException:
            connection.close()
            raise
        # The server had closed it, as servers do with idle ones.
        connection, reused = None, False


def _check_secrets(request: Request, key: Key) -> None:
    """Raise `UntrustedError` if anyone on the way could read what proves who we are.

    A signature is of use for one request only.
    """
    origin = request.origin
    if origin.scheme != "http" or request.allow_http or is_local(key):
        return
    for name, value in request.headers.items():
        if name in request.secret_headers or (
            name.lower() == "authorization" and not _SIGNED.match(value)
        ):
            what = f"the header {name}"
            break
    else:
        if not _SHARED_ACCESS.search(request.target):
            return
        what = "the SAS token"
    msg = (
        f"{what} would be sent to {origin.text}{through_proxy(key)} for anyone on the way to read; "
        "nothing was sent. Use https://, or give the storage option allow_http=True"
    )
    raise UntrustedError(msg)


def _answered(connection: Connection, key: Key, request: Request) -> Answer:
    head: Head | None = None
    try:
        connection.socket.sendall(_head(key, request))
        _send_body(connection.socket, request.body)
    except _BROKEN:
        # Servers refuse large bodies by answering at once and hanging up.
        with suppress(*FAILURES):
            head = connection.incoming.head()._replace(stays=False)
        if head is None:
            raise
    else:
        head = connection.incoming.head()
    if request.method not in _READS:
        # Services that take long to put an object together keep the line open with blanks.
        connection.incoming.expect(None)
    return Answer(connection, head, key, bodyless=request.method == "HEAD")


def _send_body(sock: socket.socket, body: Sequence[memoryview]) -> None:
    """Send a body and wait for the answer; each wait is for the other side to take some bytes.

    `sendall` would count the time of all. The system takes bytes by the megabyte, too: that it
    wants no more, or that it has all, says nothing of those on the way.
    """
    for view in body:
        at = 0
        while at < len(view):
            at += _in_time(sock, partial(sock.send, view[at : at + _SEND_BYTES]))
    if body:
        _in_time(sock, partial(_wait_readable, sock))


def _in_time(sock: socket.socket, act: Callable[[], int]) -> int:
    """Return what `act` returns, called again after a timeout if bytes have gone meanwhile."""
    left = _queued_bytes(sock)
    while True:
        try:
            return act()
        except TimeoutError:
            before, left = left, _queued_bytes(sock)
            if left >= before:
                raise


def _wait_readable(sock: socket.socket) -> int:
    timeout = sock.gettimeout()
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    if not poll.poll(None if timeout is None else timeout * 1000):
        msg = "timed out"
        raise TimeoutError(msg)
    return 0


def _queued_bytes(sock: socket.socket) -> int:
    """Return how many bytes the other side has not got yet; the most there are if unknown."""
    try:
        said = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return sys.maxsize
    return int.from_bytes(said, sys.byteorder)


def _head(key: Key, request: Request) -> bytes:
    """Return what precedes the body; raises `WireError` for what no request may have."""
    target = request.target
    given = set(map(_lowered, request.headers))
    headers: dict[str, str] = {}
    if "host" not in given:
        headers["Host"] = request.origin.authority
    if "accept-encoding" not in given:
        # What lies in a store is wanted as it lies there.
        headers["Accept-Encoding"] = "identity"
    headers |= request.headers
    if key.proxy is not None and request.origin.scheme == "http":
        target = request.origin.text + target
        headers |= proxy_headers(key.proxy)
    if request.body or request.method in _WITH_BODY:
        headers["Content-Length"] = str(sum(map(len, request.body)))
    # None of these messages repeats what may be secret.
    if not _TARGET.fullmatch(target):
        raise WireError(_BAD_CHARACTERS.format("the path or query"))
    values = "".join(headers.values())
    if "\r" in values or "\n" in values or "\0" in values or not values.isascii():
        for name, value in headers.items():
            if _BAD_IN_VALUES.search(value):
                raise WireError(_BAD_CHARACTERS.format(f"the header {name!r}"))
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


@lru_cache(maxsize=256)
def _lowered(name: str) -> str:
    """Return the name of a header in small letters; raises `WireError` if it is none."""
    if not _NAME.fullmatch(name):
        raise WireError(_BAD_CHARACTERS.format(f"the header {name!r}"))
    return name.lower()
