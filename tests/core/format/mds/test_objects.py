"""Bytes, text, JSON, pickles, values encoded already, and encodings of users."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.format.mds.making import key, make_shard, of_value, opened, round_trip
from tests.core.format.mds.values import JSON

from streaming_core._format._mds import Encoding, MDSColumns, came, mds_encodings
from streaming_core.errors import SchemaError, ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator


def refused(encoding: str, value: Any, error: type[Exception]) -> str:
    """Return the message with which `value` is refused."""
    with pytest.raises(error) as caught:
        mds_encodings[encoding]().encode(value)
    return str(caught.value)


@given(st.binary())
def test_bytes_come_back(value: bytes) -> None:
    """Bytes are stored as they are, the empty ones too, from every kind of buffer."""
    assert key(round_trip("bytes", value)) == key(value)
    assert round_trip("bytes", bytearray(value)) == value
    assert round_trip("bytes", memoryview(value)[::-1]) == value[::-1]


@given(st.text())
def test_text_comes_back(value: str) -> None:
    """Every text that is valid Unicode comes back."""
    assert key(round_trip("str", value)) == key(value)
    assert round_trip("str", np.str_(value)) == value


def test_half_a_character_is_refused() -> None:
    """A lone surrogate is no text that others could read."""
    assert "surrogates not allowed" in refused("str", "a\ud800", ValueError)


@given(JSON)
def test_json_comes_back(value: Any) -> None:
    """Every JSON value comes back, and so do infinities and texts of any kind."""
    assert key(round_trip("json", value)) == key(value)


def test_what_python_adds_to_json_comes_back() -> None:
    """NaN is written as Python and the reference write it."""
    assert key(round_trip("json", [math.nan])) == key([math.nan])


def test_arrays_are_json_lists() -> None:
    """An array is written as nested lists."""
    assert round_trip("json", np.arange(4).reshape(2, 2)) == [[0, 1], [2, 3]]


@given(JSON | st.tuples(st.binary(), st.sets(st.integers())))
def test_pickles_come_back_where_allowed(value: Any) -> None:
    """A reader that allows pickles gets the objects back."""
    assert key(round_trip("pkl", value)) == key(value)


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        ("bytes", "a", "wanted bytes, came str 'a'"),
        ("bytes", 3, "wanted bytes, came int 3"),
        ("bytes", None, "wanted bytes, came NoneType None"),
        ("str", bytearray(b"a"), "wanted str, came bytearray"),
        ("str", 3, "wanted str, came int 3"),
        ("json", {1, 2}, "set is not JSON serializable"),
        ("json", np.int64(3), "int64 is not JSON serializable"),
        ("pkl", lambda: None, "wanted a picklable object, came function"),
    ],
)
def test_values_of_another_type_are_refused(encoding: str, value: Any, text: str) -> None:
    """The message says what was wanted and what came."""
    assert text in refused(encoding, value, TypeError)


@pytest.mark.parametrize("data", ["[]".encode("utf-16"), b"\xef\xbb\xbf[]", b'"\xed\xa0\x80"'])
def test_json_is_utf_8(data: bytes) -> None:
    """Other encodings are not guessed at: they would read differently elsewhere, or not at all."""
    with pytest.raises(ShardCorruptError, match="column 'x'"):
        opened(*of_value("json", data)).row(0)


# --- encoded already ------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", sorted(mds_encodings))
def test_bytes_pass_through_every_encoding(encoding: str) -> None:
    """A value of type bytes counts as encoded and is stored as it is."""
    columns = MDSColumns({"x": encoding})
    (size,) = columns.sizes
    data = bytes(range(5 if size is None else size))
    assert columns.encode({"x": data}).endswith(data)


@pytest.mark.parametrize("encoding", ["int", "uint8", "float16", "ndarray:uint8:3"])
@pytest.mark.parametrize("change", [-1, 1])
def test_bytes_of_another_size_are_refused_in_fixed_columns(encoding: str, change: int) -> None:
    """Bytes that are not as long as every value would shift all that follows."""
    columns = MDSColumns({"x": encoding})
    size = columns.sizes[0] or 0
    with pytest.raises(ValueError, match=f"wanted {size} bytes, came {size + change}"):
        columns.encode({"x": bytes(size + change)})


# --- encodings of users ---------------------------------------------------------------------------


class Pair(Encoding):
    """Two bytes as a pair of numbers."""

    size = 2

    def encode(self, obj: Any) -> bytes:
        """Return both bytes."""
        return bytes(obj)

    def decode(self, data: bytes) -> Any:
        """Return both numbers."""
        return tuple(data)


class Reversed(Encoding):
    """Text, written backwards between marks that the column chooses."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    @classmethod
    def parse(cls, arguments: str) -> Reversed:
        """Take the mark."""
        if not arguments:
            msg = "give a mark"
            raise ValueError(msg)
        return cls(arguments)

    def encode(self, obj: Any) -> bytes:
        """Return mark and text."""
        return (self.mark + str(obj)[::-1]).encode()

    def decode(self, data: bytes) -> Any:
        """Return the text, or fail in a way of its own."""
        text = data.decode()
        if text == "?":
            raise KeyError(text)
        if text == "!":
            raise EOFError
        return text.removeprefix(self.mark)[::-1]


@pytest.fixture
def _own() -> Iterator[None]:
    mds_encodings.update(pair=Pair, reversed=Reversed)
    yield
    del mds_encodings["pair"], mds_encodings["reversed"]


@pytest.mark.usefixtures("_own")
def test_encodings_of_users_work_by_name() -> None:
    """Registered under a new name, an encoding is written, read, and given its arguments."""
    columns = {"a": "pair", "b": "reversed", "c": "reversed:#"}
    sample = {"a": (1, 2), "b": "abc", "c": "xyz"}
    info, raw = make_shard(columns, [sample])
    assert raw.endswith(b"\x01\x02cba#zyx")
    assert info.schema.column_sizes == (2, None, None)
    assert list(opened(info, raw)) == [sample]


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(("data", "text"), [(b"?", "KeyError: '?'"), (b"!", "EOFError")])
def test_what_an_encoding_of_a_user_raises_is_located(data: bytes, text: str) -> None:
    """Whatever it raises on bytes that are not its own, the reader says where they are."""
    where = r"shard\.00007\.mds, byte \d+: sample 0: column 'x': "
    with pytest.raises(ShardCorruptError, match=where + text):
        opened(*of_value("reversed", data)).row(0)


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nothing", r"column 'x': unknown encoding 'nothing'; known are bytes, float16, .*uint8"),
        ("nothing:3", "column 'x': unknown encoding 'nothing:3'"),
        ("str:3", "column 'x': encoding 'str:3': this encoding takes no arguments, but '3' came"),
        ("pair:", "column 'x': encoding 'pair:': this encoding takes no arguments"),
        ("reversed:", "column 'x': encoding 'reversed:': give a mark"),
        ("", "column 'x': unknown encoding ''"),
    ],
)
def test_unknown_encodings_are_refused(text: str, wanted: str) -> None:
    """The error names the column and what is known or wanted."""
    with pytest.raises(SchemaError, match=wanted):
        MDSColumns({"x": text})


# --- how a value is described ---------------------------------------------------------------------


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [
        *(10**10000, "x" * 10**6, b"x" * 10**6, [[1] * 1000] * 1000, np.zeros((100, 100))),
        *({i: i for i in range(10**4)}, _Unprintable(), None, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_is_described_briefly(value: Any) -> None:
    """One line names the type, whatever the value's size, and even if it cannot be printed."""
    text = came(value)
    assert text.startswith(type(value).__name__)
    assert len(text) < 80
