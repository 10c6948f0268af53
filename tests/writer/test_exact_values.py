"""What is written comes back, or the writer refuses it and names the sample and the column."""

from __future__ import annotations

import tempfile
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streaming_core import CSVWriter, JSONWriter, MDSWriter, load_index, open_store
from streaming_core._read import iterate_samples
from streaming_core.errors import SampleError, SchemaError

_FLOATS = {"float16": "f2", "float32": "f4", "float64": "f8", "str_float": "f8", "float": "f8"}
_MASKED = np.ma.array([1, 2], mask=[False, True])
_BEYOND = [Decimal("1E+1000000"), Decimal("-1E+1000000"), Fraction(10**400), 10**400]


def _written(value: Any, encoding: str | None, way: str, writer: Any = MDSWriter) -> Any:
    """Return what a reader gets after `value` was written in one of the ways."""
    columns = None if encoding is None else {"x": encoding}
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an error must not depend on filters for warnings
        out = Path(root, "out")
        if way == "beside text":
            columns = None if columns is None else {**columns, "y": "str"}
        with writer(out=out, columns=columns) as file:
            if way == "list":
                file.write_batch({"x": [value]})
            else:
                file.write({"x": value, "y": "text"} if way == "beside text" else {"x": value})
        (sample,) = iterate_samples(open_store(out), load_index(out))
        return sample["x"]


_WAYS = ["alone", "beside text", "list"]


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("encoding", ["int", "float32", "float64", None])
@pytest.mark.parametrize(
    "value",
    [
        _MASKED,
        np.ma.masked,
        np.ma.array(5, mask=True),
        np.ma.array([5.0], mask=[True]),
        np.complex64(1 + 2j),
        np.complex64(1),
        np.timedelta64(5),
        np.datetime64(5, "ns"),
        np.datetime64("NaT"),
    ],
    ids=repr,
)
def test_what_is_not_a_number_is_refused(value: Any, encoding: str | None, way: str) -> None:
    """Masked elements have no value; parts of complex numbers and times would be lost."""
    with pytest.raises((SampleError, SchemaError), match=r"sample 0.*'x'"):
        _written(value, encoding, way)


@pytest.mark.parametrize("encoding", ["int", "float32", None])
def test_masked_columns_are_refused(tmp_path: Path, encoding: str | None) -> None:
    """The error names the first row of the batch that has no value."""
    columns = None if encoding is None else {"x": encoding}
    with (
        MDSWriter(out=tmp_path / "out", columns=columns) as writer,
        pytest.raises((SampleError, SchemaError), match=r"sample 1.*'x'.*masked"),
    ):
        writer.write_batch({"x": _MASKED})


@pytest.mark.parametrize("value", [_MASKED, np.ma.masked, np.array(["NaT"], "M8[s]")], ids=repr)
def test_json_columns_do_not_hold_what_is_missing(value: Any) -> None:
    """A masked element or a time would come back as null."""
    with pytest.raises(SampleError, match=r"sample 0.*'x'"):
        _written(value, "json", "alone")


@pytest.mark.parametrize("value", [np.timedelta64(5), np.datetime64(5, "ns")], ids=repr)
@pytest.mark.parametrize("writer", [JSONWriter, CSVWriter])
def test_times_are_not_numbers_in_text(tmp_path: Path, value: Any, writer: Any) -> None:
    """NumPy converts some times to plain ints, without their unit."""
    with pytest.raises(SampleError, match="sample 0: column 'x'"):
        _written(value, "int", "alone", writer)
    with (
        writer(out=tmp_path / "out", columns={"x": "int"}) as file,
        pytest.raises(SampleError, match="sample 0: column 'x'"),
    ):
        file.write_batch({"x": np.array([value])})


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("encoding", ["float32", "float64", "str_float"])
@pytest.mark.parametrize("value", _BEYOND, ids=["large", "-large", "Fraction", "int"])
def test_finite_numbers_do_not_become_infinite(value: Any, encoding: str, way: str) -> None:
    """Numbers beyond the range of floats are refused, whatever their type."""
    with pytest.raises(SampleError, match=r"sample 0.*'x'"):
        _written(value, encoding, way)


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("value", [2**53 + 1, np.int64(2**53 + 1), np.uint64(2**64 - 1)], ids=repr)
@pytest.mark.parametrize("encoding", list(_FLOATS)[:-1])
def test_whole_numbers_are_not_rounded(value: Any, encoding: str, way: str) -> None:
    """An int that no float of the column's type equals is refused."""
    with pytest.raises(SampleError, match=r"sample 0.*'x'"):
        _written(value, encoding, way)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4"])
def test_arrays_of_whole_numbers_are_not_rounded(tmp_path: Path, dtype: str) -> None:
    """A whole array counts as its elements do."""
    column, odd = ("float32", 2**24 + 1) if dtype == "i4" else ("float64", 2**53 + 1)
    with MDSWriter(out=tmp_path / "out", columns={"x": column}) as writer:
        writer.write_batch({"x": np.array([0, odd - 1, odd + 1], dtype)})
        with pytest.raises(SampleError, match=rf"sample 4 .*'x'.*{odd}"):
            writer.write_batch({"x": np.array([0, odd], dtype)})


_NUMBERS = (
    st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.booleans()
    | st.decimals()
    | st.fractions()
    | st.sampled_from([2**24 + 1, 2**53 + 1, -(2**53) - 1, 2**63, 2**64 - 1])
    | hnp.scalar_dtypes().flatmap(hnp.from_dtype)
)
_ENCODINGS = ["int", "uint8", "int32", "uint64", "str_int", *list(_FLOATS)[:-1]]


@given(
    value=_NUMBERS,
    encoding=st.sampled_from(_ENCODINGS),
    way=st.sampled_from(_WAYS),
)
def test_any_number_comes_back_or_is_refused(value: Any, encoding: str, way: str) -> None:
    """Whole numbers come back as they are; others become the nearest float of the column."""
    try:
        found = _written(value, encoding, way)
    except (SampleError, SchemaError):
        return
    if type(value) is bytes:  # counts as encoded already
        return
    if encoding not in _FLOATS or isinstance(value, int | np.integer | np.bool_):
        assert found == value
        return
    wanted = float(value) if isinstance(value, Decimal | Fraction) else value
    nearest = np.dtype(_FLOATS[encoding]).type(wanted)
    assert found == nearest or (np.isnan(found) and np.isnan(nearest))
    assert np.isfinite(found) or not np.isfinite(wanted)
