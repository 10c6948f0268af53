"""What answers say of objects, and which requests read some ranges: decisions without a server."""

from __future__ import annotations

import calendar
import itertools
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._store._http._gate import Refusal, RefusedError, query_text
from streaming_core._store._http._reading import Body, body_of, content_range, spans

SIZES = st.integers(0, 300)


# --- Content-Range --------------------------------------------------------------------------------


@given(st.integers(0, 10**17), st.integers(1, 10**9), st.integers(0, 10**9) | st.none())
def test_a_content_range_says_what_was_meant(first: int, count: int, rest: int | None) -> None:
    """First byte, end and size come back from the header that names them."""
    size = None if rest is None else first + count + rest
    text = f"bytes {first}-{first + count - 1}/{'*' if size is None else size}"
    assert content_range(text) == (first, first + count, size)


@given(st.text(max_size=40) | st.from_regex(r"bytes [0-9*]*-?[0-9]*/[0-9*]*", fullmatch=True))
def test_any_text_is_a_sound_range_or_none(text: str) -> None:
    """Whatever a server says, the result lies inside the object or there is none."""
    found = content_range(text)
    if found is not None:
        first, end, size = found
        assert 0 <= first <= end
        assert size is None or end <= size


@pytest.mark.parametrize(
    "text",
    [
        *("", "bytes", "bytes 5-4/10", "bytes 0-10/10", "bytes -5/10", "items 0-1/2"),
        *("bytes 0-1/2, bytes 3-4/9", f"bytes 0-{'9' * 5000}/*", "bytes ٠-١/٢"),  # noqa: RUF001
    ],
)
def test_a_bad_content_range_is_none(text: str) -> None:
    """Impossible numbers, other units, several ranges and absurd lengths are no range."""
    assert content_range(text) is None


@given(
    start=st.integers(-40, 40),
    stop=st.none() | st.integers(0, 60),
    size=st.integers(1, 50),
    said=st.tuples(st.integers(0, 50), st.integers(1, 50)),
    status=st.sampled_from([200, 206]),
)
def test_a_part_is_taken_only_if_it_is_the_part_asked_for(
    start: int, stop: int | None, size: int, said: tuple[int, int], status: int
) -> None:
    """An answer with a `Content-Range` is right only if it has the bytes a server must send."""
    first, end = said[0], said[0] + said[1]
    headers = {"content-range": f"bytes {first}-{end - 1}/{size}", "etag": '"1"'}
    body = body_of(status, headers, end - first, start=start, stop=stop)
    beginning = start if start >= 0 else max(0, size + start)
    ending = size if stop is None else min(stop, size)
    is_right = beginning < ending and (first, end) == (beginning, ending)
    assert (body == Body(first, size, '"1"')) == is_right
    assert isinstance(body, str) == (not is_right)


@pytest.mark.parametrize("status", [100, 201, 204, 300, 304])
def test_another_status_is_no_body(status: int) -> None:
    """A success that is neither 200 nor 206 is a wrong answer to a request for bytes."""
    assert body_of(status, {}, 4, start=0, stop=None) == (
        f"status {status} where 200 or 206 was expected"
    )


def test_a_range_of_another_length_than_its_body_is_wrong() -> None:
    """`Content-Range` and `Content-Length` have to agree."""
    said = body_of(206, {"content-range": "bytes 0-9/20"}, 9, start=0, stop=10)
    assert said == "Content-Range 'bytes 0-9/20' with a body of 9 bytes"


# --- spans ----------------------------------------------------------------------------------------


@st.composite
def _ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    pairs = draw(st.lists(st.tuples(SIZES, SIZES), max_size=30))
    return [(min(pair), max(pair)) for pair in pairs]


@given(_ranges(), st.integers(0, 50))
def test_spans_read_what_reading_each_range_reads(ranges: list[tuple[int, int]], gap: int) -> None:
    """Cutting the ranges out of what the spans read gives the bytes of each range."""
    data = bytes(number % 251 for number in range(300))
    out = [b""] * len(ranges)
    for span in spans(ranges, gap):
        read = data[span.start : span.stop]
        for member in span.members:
            start, stop = ranges[member]
            out[member] = read[start - span.start : stop - span.start]
    assert out == [data[start:stop] for start, stop in ranges]


@given(_ranges(), st.integers(0, 50))
def test_spans_are_apart_and_read_no_more_than_the_gaps(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    """Spans come in order with more than a gap between them, and waste at most a gap per range."""
    found = spans(ranges, gap)
    assert all(a.stop + gap < b.start for a, b in itertools.pairwise(found))
    wanted = {at for start, stop in ranges for at in range(start, stop)}
    read = sum(span.stop - span.start for span in found)
    assert read <= len(wanted) + gap * max(0, len(ranges) - 1)
    full = [number for number, (start, stop) in enumerate(ranges) if start < stop]
    assert sorted(member for span in found for member in span.members) == full


# --- Retry-After ----------------------------------------------------------------------------------


def _retry_after(text: str, **headers: str) -> float | None:
    return RefusedError(503, {"retry-after": text, **headers}, Refusal()).retry_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("9" * 5000, None),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
        ("Wed, 99 Oct 2026 99:99:99 GMT", None),
    ],
)
def test_retry_after_comes_as_a_number(text: str, seconds: float | None) -> None:
    """Seconds are seconds; what cannot be read says nothing and harms nobody."""
    assert _retry_after(text) == seconds


def test_retry_after_comes_as_a_date_of_the_servers_clock() -> None:
    """A date counts from the answer's own `Date`, so a clock that is a day off does not matter."""
    theirs = time.time() - 86_400
    later = formatdate(theirs + 30, usegmt=True)
    assert _retry_after(later, date=formatdate(theirs, usegmt=True)) == pytest.approx(30, abs=1)
    assert _retry_after(formatdate(theirs - 5, usegmt=True), date=formatdate(theirs)) == 0.0


def test_retry_after_counts_from_our_clock_without_a_date() -> None:
    """Where the answer has no `Date`, ours has to do."""
    seconds = _retry_after(formatdate(time.time() + 30, usegmt=True))
    assert seconds == pytest.approx(30, abs=3)


def test_a_date_without_a_zone_is_gmt() -> None:
    """The local time zone is nobody's business in HTTP."""
    moment = time.gmtime(time.time() + 60)
    text = time.strftime("%a, %d %b %Y %H:%M:%S", moment)
    expected = calendar.timegm(moment) - time.time()
    assert _retry_after(text) == pytest.approx(expected, abs=3)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_retry_after_is_read_or_left(text: str, date: str) -> None:
    """No text raises, and none is negative."""
    seconds = _retry_after(text, date=date)
    assert seconds is None or seconds >= 0


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
def test_a_query_comes_back_as_it_was(query: dict[str, str]) -> None:
    """What is encoded is what a server decodes, in the order of the encoded names."""
    from urllib.parse import parse_qsl

    text = query_text(query)
    assert dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(query))) == query
    names = [pair.partition("=")[0] for pair in text.split("&")]
    assert names == sorted(names)
    assert text.isascii()
