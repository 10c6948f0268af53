"""Messages as servers may send them, and a real socket that gives them in pieces."""

from __future__ import annotations

import re
import select
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["Fed", "Message", "fed", "messages", "pieces", "unfolded"]

_FOLD = re.compile(r"\r?\n[ \t]+")


class Fed(socket.socket):
    """One end of a pair: what the other says comes one piece at a time, each when it is wanted.

    So the kernel never joins two pieces, whatever the machine is busy with. After the last one
    the other end closes.
    """

    other: socket.socket
    left: list[bytes]

    def _feed(self) -> None:
        if select.select([self], [], [], 0)[0]:
            return
        if self.left:
            self.other.sendall(self.left.pop(0))
        else:
            self.other.shutdown(socket.SHUT_WR)

    def recv(self, *args: Any) -> bytes:
        """Give what there is of this piece, or the next one."""
        self._feed()
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        """Give what there is of this piece, or the next one."""
        self._feed()
        return super().recv_into(*args)


@contextmanager
def fed(said: Iterable[bytes]) -> Generator[Fed]:
    """Give a socket on which these pieces come."""
    ours, other = socket.socketpair()
    with other, Fed(ours.family, ours.type, ours.proto, ours.detach()) as found:
        found.settimeout(60)
        other.settimeout(60)
        found.other = other
        found.left = [piece for piece in said if piece]
        yield found


def unfolded(text: str) -> str:
    """Return a header's value on one line."""
    return _FOLD.sub(" ", text).strip(" \t")


class Message(NamedTuple):
    """An answer, and the request it may answer."""

    method: str
    head: bytes
    body: bytes
    """As it is sent."""
    content: bytes
    """As it is meant."""
    ends_itself: bool
    """Whether its end can be known without the end of the connection."""

    @property
    def data(self) -> bytes:
        """All that is sent."""
        return self.head + self.body


# Everything that is visible, with blanks within but not around it.
_VALUES = st.from_regex(
    r"([!-~\xa1-\xff]([ \t!-~\xa1-\xff]{0,20}[!-~\xa1-\xff])?)?", fullmatch=True
)
_NAMES = st.from_regex(r"[Xx]-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True)
_BREAK = st.sampled_from(["\r\n", "\n"])
_FOLDS = st.sampled_from(["\r\n ", "\r\n\t \t", "\n  "])


@st.composite
def _headers(draw: st.DrawFn) -> list[str]:
    lines = []
    for name, value in draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=5)):
        lead, after = draw(st.sampled_from(["", " ", "\t "])), draw(st.sampled_from(["", "  "]))
        text = f"{name}:{lead}{value}{after}"
        if value and draw(st.booleans()):
            text += draw(_FOLDS) + draw(st.from_regex(r"[!-~]{1,9}", fullmatch=True))
        lines.append(text)
    return lines


@st.composite
def _in_chunks(draw: st.DrawFn, content: bytes) -> bytes:
    out, at = b"", 0
    while at < len(content):
        size = draw(st.integers(1, len(content) - at))
        form = draw(st.sampled_from(["%x", "%X", "%05x", "%032x", "%x ", "%x;a=b", '%x ;q="c;d"']))
        out += (form % size).encode() + b"\r\n" + content[at : at + size] + b"\r\n"
        at += size
    trailers = draw(st.sampled_from([b"", b"X-After: 1\r\n", b"X-A: 1\r\nX-B: 2\r\n"]))
    return out + draw(st.sampled_from([b"0", b"000", b"0;last"])) + b"\r\n" + trailers + b"\r\n"


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Draw an answer of which HTTP's rules say exactly what it means."""
    method = draw(st.sampled_from(["GET", "GET", "GET", "HEAD", "PUT"]))
    minor = draw(st.sampled_from("110"))
    status = draw(st.sampled_from([200, 206, 204, 304, 302, 404, 503, 599]))
    content = draw(st.binary(max_size=400))
    lines = draw(_headers())
    # The library would read chunks where none can be.
    forms = ["length", "end"] + ["chunks"] * (minor == "1" and status not in {204, 304})
    form = draw(st.sampled_from(forms))
    bodyless = method == "HEAD" or status in {204, 304}
    body = content
    if form == "length":
        name = draw(st.sampled_from(["Content-Length", "content-length", "CONTENT-LENGTH"]))
        lines += [f"{name}: {len(content)}"] * draw(st.sampled_from([1, 1, 2]))
    elif form == "chunks":
        lines.append(f"Transfer-Encoding: {draw(st.sampled_from(['chunked', 'Chunked']))}")
        body = draw(_in_chunks(content))
    said = draw(st.sampled_from(["", "", "close", "Close", "keep-alive", "Keep-Alive, x-upgrade"]))
    if said:
        lines.append(f"Connection: {said}")
    lines = draw(st.permutations(lines))
    phrase = draw(st.sampled_from([" OK", " Not  Found", " ", ""]))
    end = draw(_BREAK)
    head = "".join(line + end for line in (f"HTTP/1.{minor} {status}{phrase}", *lines, ""))
    first = draw(st.sampled_from(["", "", "HTTP/1.1 100 Continue\r\n\r\n"])) * draw(
        st.integers(1, 3)
    )
    return Message(
        method,
        (first + head).encode("latin-1"),
        b"" if bodyless else body,
        b"" if bodyless else content,
        bodyless or form != "end",
    )


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut data anywhere."""
    if draw(st.booleans()) and len(data) < 1000:
        return [data[i : i + 1] for i in range(len(data))]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
