"""Versions of files that say when they were written are compared by that, all others as texts."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._virtual._versions import may_be_same

_SECOND = 1_000_000_000


def _local(nanoseconds: int, size: int, inode: int = 0x1F) -> str:
    return f"{inode:x}-{nanoseconds:x}-{size:x}"


def _nginx(nanoseconds: int, size: int) -> str:
    return f'"{nanoseconds // _SECOND:x}-{size:x}"'


def _apache(nanoseconds: int, size: int) -> str:
    return f'"{size:x}-{nanoseconds // 1000:x}"'


def _modified(nanoseconds: int, size: int) -> str:
    del size
    return formatdate(nanoseconds // _SECOND, usegmt=True)


_FORMS = {"local": _local, "nginx": _nginx, "apache": _apache, "modified": _modified}
_TIMES = st.integers(_SECOND, 4_000_000_000 * _SECOND)
_SIZES = st.integers(1, 1 << 40)
_NAMES = st.sampled_from(sorted(_FORMS))


@given(one=_NAMES, other=_NAMES, time=_TIMES, size=_SIZES)
def test_the_same_file_is_the_same_in_every_form(
    one: str, other: str, time: int, size: int
) -> None:
    """Whoever said it first."""
    assert may_be_same(_FORMS[one](time, size), _FORMS[other](time, size), size)


@given(one=_NAMES, other=_NAMES, time=_TIMES, size=_SIZES, later=st.integers(_SECOND, 1 << 60))
def test_a_file_of_another_second_is_another(
    one: str, other: str, time: int, size: int, later: int
) -> None:
    """In every pair of forms."""
    assert not may_be_same(_FORMS[one](time, size), _FORMS[other](time + later, size), size)


@given(other=st.sampled_from(["local", "nginx", "apache"]), time=_TIMES, size=_SIZES)
def test_a_file_of_another_size_is_another(other: str, time: int, size: int) -> None:
    """Where its version says how long it is."""
    assert not may_be_same(_local(time, size), _FORMS[other](time, size + 1), size)


def test_copies_of_this_machine_agree_as_exactly_as_times_are_kept() -> None:
    """Other numbers of the file do not matter; a time without fractions is one of seconds."""
    time = 1_700_000_000_123_456_789
    assert may_be_same(_local(time, 5), _local(time, 5, inode=0x2A), 5)
    assert not may_be_same(_local(time, 5), _local(time + 1, 5), 5)
    assert may_be_same(_local(time, 5), _local(1_700_000_000 * _SECOND, 5), 5)
    assert not may_be_same(_local(time, 5), _local(1_700_000_001 * _SECOND, 5), 5)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('"abc"', "abc", True),
        ('W/"abc"', '"abc"', True),
        ("", '"abc"', True),
        ('"abc"', "", True),
        ('"abc"', '"abd"', False),
        ('"d41d8cd98f00b204e9800998ecf8427e-5"', '"d41d8cd98f00b204e9800998ecf8427f-5"', False),
        ("Sun, 22 Nov 2026 01:15:23 GMT", "Sun, 22 Nov 2026 01:15:24 GMT", False),
        ("Sun, 99 Nov 2026 01:15:23 GMT", "Sun, 22 Nov 2026 01:15:23 GMT", False),
        ("1f-18ea390bb31f0946-5", '"0x8DEADBEEF"', False),
    ],
)
def test_what_says_no_time_must_be_equal(one: str, other: str, same: bool) -> None:
    """But for quotes and marks that only some answers have; nothing at all says nothing."""
    assert may_be_same(one, other, 5) is same
    assert may_be_same(other, one, 5) is same
