"""Any bytes in the place of any value, record or shard: a value, or an error of the shard."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.core.format.mds.making import make_shard, of_record, of_value, opened, promised
from tests.core.format.mds.values import VALUES, picture
from tests.profiles import examples

from streaming_core._format._mds import MDSColumns, mds_encodings
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODINGS = sorted(
    name for name in (*mds_encodings, "ndarray:uint16", "ndarray:int64") if name != "pkl"
)
WIDE = {"a": "str", "b": "ndarray", "c": "int", "d": "list[pil]"}


def survives(call: Callable[[], object]) -> None:
    """Call, and take a value or the shard's own error; any other error is the test's."""
    text = ""
    try:
        call()
    except ShardCorruptError as error:
        text = str(error)
    assert not text or text.startswith("shard.00007.mds, byte ")


@st.composite
def changed(draw: st.DrawFn, good: bytes) -> bytes:
    """Return `good` with some bytes put in, taken out or replaced."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        stop = draw(st.integers(at, min(len(data), at + 8)))
        data[at:stop] = draw(st.binary(max_size=8))
    return bytes(data)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=examples(100))
@given(data=st.binary(max_size=64))
def test_any_bytes_are_a_value_or_an_error(encoding: str, data: bytes) -> None:
    """No decoder passes on an error of its own."""
    size = MDSColumns({"x": encoding}).sizes[0]
    info, raw = of_value(encoding, data if size is None else data[:size].ljust(size))
    survives(lambda: opened(info, raw).row(0))


@pytest.mark.parametrize("encoding", sorted(name for name in VALUES if name != "pkl"))
@settings(max_examples=examples(100))
@given(data=st.data())
def test_changed_values_are_values_or_errors(encoding: str, data: st.DataObject) -> None:
    """Nearly good bytes reach further into a decoder than noise does."""
    columns = MDSColumns({"x": encoding})
    good = columns.encode({"x": data.draw(VALUES[encoding])})
    info, raw = of_record({"x": encoding}, data.draw(changed(good)))
    survives(lambda: opened(info, raw).row(0))


def _file(kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    picture(mode, 9, 7).save(file, kind)
    return file.getvalue()


FILES = [_file(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "EPS", "ICO")]


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
@given(data=st.data())
def test_changed_pictures_are_pictures_or_errors(encoding: str, data: st.DataObject) -> None:
    """Whatever Pillow raises on opening a damaged file is an error of the shard."""
    info, raw = of_value(encoding, data.draw(st.sampled_from(FILES).flatmap(changed)))
    with warnings.catch_warnings():
        warnings.simplefilter(data.draw(st.sampled_from(["error", "ignore"])))
        survives(lambda: opened(info, raw).row(0))


@given(st.binary(max_size=80))
def test_any_record_is_a_sample_or_an_error(record: bytes) -> None:
    """Lengths and columns that do not fit are noticed, whatever they are."""
    info, raw = of_record(WIDE, record)
    survives(lambda: opened(info, raw).row(0))


@given(st.integers(0, 3), st.data())
def test_any_shard_is_read_or_refused(samples: int, data: st.DataObject) -> None:
    """A whole shard with changes anywhere gives its samples, or errors that name the byte."""
    rows = [{"a": "é", "b": b"\x08\x04\x01\x07", "c": i, "d": []} for i in range(samples)]
    info, good = make_shard(WIDE, rows)
    raw = data.draw(changed(good) | st.binary(max_size=64))
    info = replace(promised(info, raw), samples=data.draw(st.sampled_from([samples, 0, 2**32 - 1])))
    survives(lambda: list(opened(info, raw)))


def test_pillow_knows_the_files_that_are_changed() -> None:
    """The pictures are good before they are damaged."""
    assert {Image.open(io.BytesIO(file)).size for file in FILES} >= {(9, 7)}
