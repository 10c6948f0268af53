"""Packets of SFTP, and what is made of a server that sends other ones."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._store._sftp._packets import (
    Attributes,
    Cursor,
    Kind,
    PacketError,
    Status,
    StatusError,
    packet,
    text,
    u32,
    u64,
)
from streaming_core._store._sftp._session import READ, Session
from streaming_core._store._sftp._transfer import CHUNK_BYTES, _joined

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Line:
    """A channel that has heard all the server will ever say, and gives it out bit by bit."""

    def __init__(self, *heard: bytes, step: int = 1 << 20) -> None:
        self.heard = b"".join(heard)
        self.sent = b""
        self._step = step

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, most: int) -> bytes:
        count = min(most, self._step)
        piece, self.heard = self.heard[:count], self.heard[count:]
        return piece


_HELLO = packet(Kind.VERSION, u32(3), text(b"fsync@openssh.com"), text(b"1"))


def _status(number: int, code: int, message: bytes = b"") -> bytes:
    return packet(Kind.STATUS, u32(number), u32(code), text(message), text(b"en"))


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_answers_are_found_by_their_numbers(step: int) -> None:
    """They may come in any order and in pieces of any size; forgotten ones are skipped."""
    line = _Line(
        _HELLO,
        packet(Kind.DATA, u32(3), text(b"third")),
        _status(2, Status.OK),
        packet(Kind.DATA, u32(1), text(b"first")),
        _status(4, Status.END),
        step=step,
    )
    session = Session(line)
    numbers = [session.ask_read(b"h", at, 5) for at in (0, 5, 10, 15)]
    session.forget(numbers[1])
    was_quiet = session.is_quiet
    assert [session.data(numbers[i]) for i in (0, 2, 3)] == [b"first", b"third", b""]
    assert (was_quiet, session.is_quiet) == (False, True)
    assert session.extensions == {b"fsync@openssh.com"}


@pytest.mark.parametrize(
    ("heard", "reason"),
    [
        (_status(9, Status.OK), "request 9, which was not made"),
        (packet(Kind.DATA, u32(1), text(b"x")), "kind 103 where 102"),
        (packet(Kind.HANDLE, u32(1), u32(99), b"short"), "ended where"),
        (_status(1, Status.OK), "kind 101 where 102"),
        (b"\xff\xff\xff\xff\x01", "this is no SFTP"),
        (b"\x00\x00\x00\x00", "this is no SFTP"),
        (packet(Kind.HANDLE, b"\x00"), "ended where"),
        (b"\x00\x00\x00\x20\x66", "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_a_server_that_breaks_the_protocol_is_an_error(heard: bytes, reason: str) -> None:
    """Never a hang, a wrong answer or an error of another kind."""
    session = Session(_Line(_HELLO, heard))
    with pytest.raises(OSError, match=reason):
        session.open(b"/a", READ)
    assert not session.is_quiet or "kind" in reason or "ended" in reason


def test_what_is_no_sftp_at_all_is_an_error() -> None:
    """Such as the words that a login shell prints."""
    with pytest.raises(PacketError, match="this is no SFTP"):
        Session(_Line(b"Welcome to this machine!\n"))


def test_a_refusal_shows_what_the_server_says_in_one_line() -> None:
    """Its words are cut and cleaned, because they are not ours."""
    session = Session(_Line(_HELLO, _status(1, Status.DENIED, b"no\x1b[31m\nway " + b"x" * 999)))
    with pytest.raises(StatusError) as caught:
        session.open(b"/a", READ)
    shown = str(caught.value)
    assert shown.startswith("denied (no [31m way xxx")
    assert (shown.isprintable(), len(shown) < 250) == (True, True)
    assert str(StatusError(77, "")) == "status 77"


@given(
    size=st.none() | st.integers(0, 2**64 - 1),
    mode=st.none() | st.integers(0, 2**32 - 1),
    modified=st.none() | st.integers(0, 2**32 - 1),
    owner=st.booleans(),
    extended=st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=3),
)
def test_attributes_are_read_as_they_were_written(
    size: int | None,
    mode: int | None,
    modified: int | None,
    *,
    owner: bool,
    extended: list[tuple[bytes, bytes]],
) -> None:
    """Whichever of them a server sends; what follows is not touched."""
    flags, fields = 0, b""
    if size is not None:
        flags, fields = flags | 1, fields + u64(size)
    if owner:
        flags, fields = flags | 2, fields + u32(7) + u32(8)
    if mode is not None:
        flags, fields = flags | 4, fields + u32(mode)
    if modified is not None:
        flags, fields = flags | 8, fields + u32(1) + u32(modified)
    if extended:
        pairs = b"".join(text(name) + text(value) for name, value in extended)
        flags, fields = flags | 0x80000000, fields + u32(len(extended)) + pairs
    cursor = Cursor(u32(flags) + fields + b"!")
    assert cursor.attributes() == Attributes(size, mode, modified)
    assert cursor.take(1) == b"!"


def test_what_is_not_said_is_taken_for_a_file_without_a_version() -> None:
    """Some servers send no modes or no times."""
    assert Attributes(size=4).is_file
    assert Attributes(size=4, mode=0o644, modified=16).etag == "10-4"
    assert Attributes(size=4).etag == ""
    assert not Attributes(mode=stat.S_IFDIR).is_file
    assert not Attributes(mode=stat.S_IFIFO).is_file


@given(
    st.lists(
        st.sampled_from([0, 1, 5, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
    )
)
def test_chunks_make_up_what_was_given(sizes: list[int]) -> None:
    """All bytes in order, in chunks that are full but for the last."""
    data = bytes(range(251)) * (sum(sizes) // 251 + 1)
    views: list[memoryview] = []
    at = 0
    for size in sizes:
        views.append(memoryview(data)[at : at + size])
        at += size
    chunks: Iterable[bytes] = [bytes(chunk) for chunk in _joined(views)]
    assert b"".join(chunks) == data[:at]
    assert all(len(chunk) == CHUNK_BYTES for chunk in [*chunks][:-1])
