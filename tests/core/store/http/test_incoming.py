"""Answers as they come over a line: read as the standard library reads them, however cut."""

from __future__ import annotations

import http.client
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.store.http.incoming import Message, fed, messages, pieces, unfolded

from streaming_core._store._http._connections import Connection, Key, Origin, kept
from streaming_core._store._http._incoming import Chunks, Incoming, NoAnswerError, WireError
from streaming_core._store._http._wire import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_KEY = Key(Origin("http", "host", 80), None, None)
_READS = st.lists(st.integers(1, 700), min_size=1, max_size=4)


def _by_us(
    said: Iterable[bytes], method: str, steps: Sequence[int] = (1 << 16,)
) -> tuple[int, dict[str, str], bytes, bool]:
    """Return status, headers, body, and whether the connection is kept."""
    kept.forget()
    with fed(said) as line:
        connection = Connection(line)
        head = connection.incoming.head()
        answer = Answer(connection, head, _KEY, bodyless=method == "HEAD")
        body = b""
        while True:
            view = memoryview(bytearray(steps[len(body) % len(steps)]))
            count = answer.readinto(view)
            if not count:
                break
            body += view[:count]
        answer.close()
        stays = line.fileno() >= 0
        kept.forget()
        return head.status, head.headers, body, stays


def _by_reads(said: Iterable[bytes], method: str, steps: Sequence[int]) -> list[bytes]:
    """Return what each call of `read` gave, up to the one that gave nothing."""
    kept.forget()
    with fed(said) as line:
        connection = Connection(line)
        head = connection.incoming.head()
        found: list[bytes] = []
        with Answer(connection, head, _KEY, bodyless=method == "HEAD") as answer:
            while piece := answer.read(steps[len(found) % len(steps)]):
                found.append(piece)
        kept.forget()
        return found


def _by_the_library(said: bytes, method: str) -> tuple[int, dict[str, str], bytes, bool]:
    ours, other = socket.socketpair()
    with ours, other:
        other.sendall(said)
        other.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(ours, method=method)
        response.begin()
        headers = {name.lower(): unfolded(value) for name, value in response.headers.items()}
        found = response.status, headers, response.read(), not response.will_close
        response.close()
        return found


@given(st.data(), messages(), _READS)
def test_reads_what_the_standard_library_reads(
    data: st.DataObject, message: Message, steps: list[int]
) -> None:
    """Status, headers, body and the connection's fate are the same, wherever the data is cut."""
    found = _by_us(data.draw(pieces(message.data)), message.method, steps)
    assert found[2] == message.content
    # The library's headers are cut at characters that end lines elsewhere, but not in HTTP.
    assert found == _by_the_library(message.data, message.method)
    assert found[3] <= message.ends_itself


@given(st.data(), messages().filter(lambda found: found.ends_itself), st.binary(min_size=1))
def test_what_comes_with_an_answer_never_reaches_the_next_request(
    data: st.DataObject, message: Message, garbage: bytes
) -> None:
    """Bytes that nobody asked for are in no body, and the connection is not used again."""
    cut = data.draw(pieces(message.data))
    # Together with the end of the answer: what comes later is looked for before the next request.
    cut = [piece for piece in cut if piece]
    *_, body, stays = _by_us([*cut[:-1], cut[-1] + garbage], message.method)
    assert body == message.content
    if stays:
        # All was taken but what the kernel still has, which `kept` looks at.
        with fed([*cut[:-1], cut[-1] + garbage]) as line:
            connection = Connection(line)
            answer = Answer(
                connection, connection.incoming.head(), _KEY, bodyless=message.method == "HEAD"
            )
            answer.read(1 << 20)
            assert answer.readinto(memoryview(bytearray(1))) == 0
            answer.close()
            assert kept.take(_KEY) is None


@given(st.data(), messages().filter(lambda found: found.ends_itself and bool(found.data)))
def test_an_answer_that_ends_early_is_an_error(data: st.DataObject, message: Message) -> None:
    """Wherever the connection ends before the answer does, there is no answer."""
    last = len(message.data.rstrip(b"\r\n")) if message.body else len(message.head) - 1
    end = data.draw(st.integers(0, min(last, len(message.data)) - 1))
    with pytest.raises(WireError):
        _by_us(data.draw(pieces(message.data[:end])), message.method)


@given(st.data(), st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]))
def test_any_bytes_are_an_answer_or_an_error(
    data: st.DataObject, noise: bytes, lead: bytes
) -> None:
    """Nothing that may come makes anything else happen."""
    try:
        status, _, _, _ = _by_us(data.draw(pieces(lead + noise)), "GET")
    except WireError:
        return
    assert 200 <= status <= 999


@given(st.data(), messages())
def test_a_damaged_answer_is_an_answer_or_an_error(data: st.DataObject, message: Message) -> None:
    """With some bytes lost, doubled or changed, reading ends as well."""
    text = bytearray(message.data)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(WireError):
        _by_us([bytes(text)], message.method)


# --- heads ----------------------------------------------------------------------------------------


def _head(text: bytes) -> tuple[int, dict[str, str]]:
    with fed([text]) as line:
        found = Incoming(line).head()
        return found.status, found.headers


def test_a_header_may_go_on_in_the_next_line() -> None:
    """Lines that begin with a blank belong to the one before, of whatever header."""
    head = b"HTTP/1.1 200 OK\r\nX-A: one\r\n\ttwo\r\n  three \r\nX-B:\r\n four\r\n\r\n"
    assert _head(head)[1] == {"x-a": "one two three", "x-b": "four"}
    length = b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 4\r\n\r\nbody"
    assert _by_us([length], "GET")[2:] == (b"body", True)


def test_what_stands_before_the_first_header_is_none() -> None:
    """A line that goes on with the status is no header, though it looks like one."""
    head = b"HTTP/1.1 200 OK\r\n Content-Length: 1\r\nX-A: b\r\n\r\n"
    assert _head(head) == (200, {"x-a": "b"})


def test_blanks_are_not_part_of_names_and_values() -> None:
    """But what other alphabets count as blanks is, as an etag may end with anything."""
    head = "HTTP/1.1 200 OK\r\nETag \t:\t \xa0x\x85 \r\n\r\n".encode("latin-1")
    assert _head(head)[1] == {"etag": "\xa0x\x85"}


def test_of_several_headers_with_one_name_the_last_counts() -> None:
    """But of those that say what becomes of the connection, each."""
    head = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nConnection: close\r\nConnection: x-b\r\n\r\n"
    assert _head(head)[1] == {"x-a": "2", "connection": "close, x-b"}


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 2\xb20 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.10 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"\n\n",
        b"\x16\x03\x01\x02\x00\n\n",
        b"",
    ],
)
def test_what_is_no_http_is_no_answer(text: bytes) -> None:
    """On a kept connection it may be what was left on it, so it is known from a broken answer."""
    with pytest.raises(NoAnswerError):
        _head(text)


def test_a_line_that_is_no_header_is_an_error() -> None:
    """Whatever it was meant to be."""
    with pytest.raises(WireError, match="no header: 'nonsense'"):
        _head(b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n")


def test_strange_codes_are_codes() -> None:
    """A status that no standard has is an error of the server, which those above name."""
    assert _head(b"HTTP/1.1 999 Request denied\r\n\r\n")[0] == 999


@pytest.mark.parametrize("piece", [b"X-A: b\r\n", b"x" * 999, b" folded\r\n", b"\r"])
def test_a_head_without_end_is_an_error_soon(piece: bytes) -> None:
    """Neither many lines nor a long one are kept for ever."""
    line = [b"HTTP/1.1 200 OK\r\nX: ", *[piece * (20_000 // len(piece))] * 20]
    with fed(line) as left, pytest.raises(WireError, match="head of the answer has more than"):
        Incoming(left).head()


@pytest.mark.slow
def test_a_huge_head_in_crumbs_is_read_in_time() -> None:
    """As large as is allowed, a byte at a time."""
    filler = b"X-A: " + b"b" * 60_000 + b"\r\n"
    text = b"HTTP/1.1 200 OK\r\n" + filler + b"\r\n"
    with fed([text[i : i + 1] for i in range(len(text))][::1]) as line:
        assert len(Incoming(line).head().headers["x-a"]) == 60_000


# --- what precedes an answer ----------------------------------------------------------------------


def test_answers_that_precede_one_are_passed_over() -> None:
    """Whichever they are, and whatever headers they have."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n"
    said = b"HTTP/1.1 100\r\n\r\n" + early + b"HTTP/1.1 102 P\r\n\r\nHTTP/1.1 204 No\r\n\r\n"
    assert _by_us([said], "PUT") == (204, {}, b"", True)


def test_none_but_those_is_an_error() -> None:
    """A server that says for ever that it will answer is not listened to for ever."""
    with pytest.raises(WireError, match="100 answers that precede"):
        _head(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)


def test_another_protocol_is_an_error() -> None:
    """Nobody asked for one."""
    with pytest.raises(WireError, match="another protocol"):
        _head(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")


@given(content=st.lists(st.binary(min_size=1, max_size=300), min_size=1), steps=_READS)
def test_a_body_is_read_in_any_steps(content: list[bytes], steps: list[int]) -> None:
    """Each `read` gives as much as was asked for, but the last, wherever the line cuts the body."""
    body = b"".join(content)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    found = _by_reads([head + content[0], *content[1:]], "GET", steps)
    assert b"".join(found) == body
    asked = [steps[turn % len(steps)] for turn in range(len(found))]
    assert [len(piece) for piece in found[:-1]] == asked[:-1]


@given(data=st.data(), count=st.integers(1, 300), lack=st.integers(1, 300))
def test_a_body_that_lacks_bytes_is_never_a_short_one(
    data: st.DataObject, count: int, lack: int
) -> None:
    """Also where all that came was there with the head."""
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (count + lack) + bytes(count)
    with pytest.raises(WireError, match="before its announced end"):
        _by_reads(data.draw(pieces(said)), "GET", [1 << 16])


# --- how a body ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "body", "stays"),
    [
        (b"Content-Length: 4", b"body", True),
        (b"Content-Length: 4, 4", b"body", True),
        (b"Content-Length: 4\r\nContent-Length: 4", b"body", True),
        (b"Content-Length: 4\r\nConnection: x-a, close", b"body", False),
        (b"Content-Length: 4\r\nConnection: close\r\nConnection: x-a", b"body", False),
        (b"Content-Length: 0004", b"body", True),
        (b"Content-Length:4\t", b"body", True),
        (b"Transfer-Encoding: chunked", b"4\r\nbody\r\n0\r\n\r\n", True),
        (b"Transfer-Encoding: identity\r\nContent-Length: 4", b"body", False),
        (b"Content-Length: 9\r\nTransfer-Encoding: chunked", b"4\r\nbody\r\n0\r\n\r\n", False),
        (b"X-A: b", b"body", False),
    ],
)
def test_a_body_ends_where_the_head_says(lines: bytes, body: bytes, stays: bool) -> None:
    """And the connection is kept where that is beyond doubt."""
    said = b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n" + body
    assert _by_us([said], "GET")[2:] == (b"body", stays)


@pytest.mark.parametrize(
    ("lines", "stays"),
    [
        (b"", False),
        (b"Connection: keep-alive\r\n", True),
        (b"Connection: Keep-Alive\r\n", True),
        (b"Connection: keep-alive, close\r\n", False),
    ],
)
def test_old_servers_say_that_a_connection_stays(lines: bytes, stays: bool) -> None:
    """Before 1.1 it ended with each answer unless both agreed."""
    said = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n" + lines + b"\r\nbody"
    assert _by_us([said], "GET")[2:] == (b"body", stays)


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 4\r\nContent-Length: 5",
        b"Content-Length: 4, 5",
        b"Content-Length: 4\r\nContent-Length: 04",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: ,",
    ],
)
def test_a_head_that_says_two_things_or_what_nobody_asked_for_is_an_error(lines: bytes) -> None:
    """Bytes that are not the object's never pass for them."""
    with pytest.raises(WireError):
        _by_us([b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n4\r\nbody\r\n0\r\n\r\n"], "GET")


@pytest.mark.parametrize(("status", "method"), [(204, "GET"), (304, "GET"), (200, "HEAD")])
@pytest.mark.parametrize("lines", [b"Content-Length: 4", b"Transfer-Encoding: chunked", b"X-A: b"])
def test_an_answer_without_a_body_has_none(status: int, method: str, lines: bytes) -> None:
    """Whatever its head says; what comes all the same spoils the connection."""
    said = b"HTTP/1.1 %d OK\r\n%b\r\n\r\n" % (status, lines)
    assert _by_us([said], method)[2:] == (b"", True)
    assert _by_us([said + b"4\r\nbody\r\n0\r\n\r\n"], method)[2:] == (b"", False)


# --- chunks ---------------------------------------------------------------------------------------


def _chunks(text: bytes) -> bytes:
    with fed([text[i : i + 16_000] for i in range(0, len(text), 16_000)]) as line:
        body, found, view = b"", Chunks(Incoming(line)), memoryview(bytearray(1 << 16))
        while count := found.readinto(view):
            body += view[:count]
        return body


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\r\n",
        b"4",
        b"4\r\nbo",
        b"4\r\nbody",
        b"4\r\nbody\r\n",
        b"4\r\nbody\r\n0",
        b"4\r\nbody\r\n0\r\n",
        b"4\r\nbody\r\n0\r\nX-A: b\r\n",
        b"4\r\nbody\n0\r\n\r\n",
        b"4\r\nbody0\r\n\r\n",
        b"3\r\nbody\r\n0\r\n\r\n",
        b"5\r\nbody\r\n0\r\n\r\n",
        b"-4\r\nbody\r\n0\r\n\r\n",
        b"+4\r\nbody\r\n0\r\n\r\n",
        b"0x4\r\nbody\r\n0\r\n\r\n",
        b"4_0\r\nbody\r\n0\r\n\r\n",
        b"4 4\r\nbody\r\n0\r\n\r\n",
        b"g\r\nbody\r\n0\r\n\r\n",
        b";4\r\nbody\r\n0\r\n\r\n",
        b"f" * 16 + b"\r\nbody\r\n0\r\n\r\n",
        b"f" * 15 + b"\r\nbody\r\n0\r\n\r\n",
        b"4\r\nbody\r\n" + b"0" * 50_000,
        b"4;" + b"x" * 50_000 + b"\r\nbody\r\n0\r\n\r\n",
        b"0\r\n" + b"X-A: b\r\n" * 50_000,
        b"0\r\n" + b"x" * 50_000,
    ],
)
def test_chunks_that_are_none_are_an_error(text: bytes) -> None:
    """Sizes that are no numbers or not true, endless lines, endless words after the body."""
    with pytest.raises(WireError):
        _chunks(text)


def test_what_is_said_after_a_body_is_passed_over() -> None:
    """With and without carriage returns, and as much as fits a head."""
    assert _chunks(b"2\nbo\r\n2\ndy\r\n0\nX-A: b\n\n") == b"body"
    assert _chunks(b"4\r\nbody\r\n0\r\n" + b"X-A: b\r\n" * 500 + b"\r\n") == b"body"
