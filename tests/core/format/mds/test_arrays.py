"""Arrays: type, shape and every value come back, whatever the array's layout in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.core.format.mds.making import key, round_trip
from tests.core.format.mds.values import arrays, little

from streaming_core._format._mds import DTYPE_CODES, ArrayEncoding, MDSColumns, array_header
from streaming_core.errors import SchemaError


@given(arrays())
def test_arrays_come_back_with_type_and_shape(array: np.ndarray[Any, Any]) -> None:
    """All three forms of the column give the array back; what comes is the caller's own."""
    forms = ["ndarray", f"ndarray:{array.dtype.name}"]
    if array.ndim and array.size:
        forms.append(f"ndarray:{array.dtype.name}:{','.join(map(str, array.shape))}")
    for form in forms:
        came = round_trip(form, array)
        assert key(came) == key(little(array))
        assert came.flags.writeable


@pytest.mark.parametrize("width", range(4))
@pytest.mark.parametrize("dtype", ["uint8", None])
def test_dimensions_take_the_narrowest_width(width: int, dtype: str | None) -> None:
    """The width of the dimensions changes exactly at 256, 65,536 and 2**32."""
    for dim, wanted in ((256**2**width - 1, width), (256**2**width, width + 1)):
        if wanted > 3:
            continue
        code = None if dtype is None else DTYPE_CODES[dtype]
        header = array_header(code, (1, dim))
        ndim = header[0 if code is None else 1]
        assert (ndim >> 2, ndim & 3) == (2, wanted)
        assert header.endswith(dim.to_bytes(1 << wanted, "little"))


@pytest.mark.parametrize("dim", [254, 255, 256, 257, 65535, 65536, 65537])
@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:uint8"])
def test_arrays_at_the_borders_of_the_widths_come_back(encoding: str, dim: int) -> None:
    """Shapes on both sides of each width are read as they were written."""
    array = (np.arange(dim) % 251).astype(np.uint8).reshape(1, dim)
    assert key(round_trip(encoding, array)) == key(array)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 70000), (1,) * 63, (0,) * 63])
@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:float16"])
def test_unusual_shapes_come_back(encoding: str, shape: tuple[int, ...]) -> None:
    """Arrays without dimensions, without values, and with all the dimensions there may be."""
    array = np.zeros(shape, np.float16)
    assert key(round_trip(encoding, array)) == key(array)


class _Tensor:
    """Something that numpy can convert."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.arange(3, dtype=dtype or np.int32)


class _Tracked:
    """Something that numpy cannot convert at the moment."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        msg = "Can't call numpy() on Tensor that requires grad."
        raise RuntimeError(msg)


def test_tensors_are_taken() -> None:
    """Whatever offers itself as an array is one."""
    assert key(round_trip("ndarray", _Tensor())) == key(np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        ("ndarray", [1, 2], "wanted a numpy array, came list [1, 2]"),
        ("ndarray", 1, "wanted a numpy array, came int 1"),
        ("ndarray", np.float32(1), "wanted a numpy array, came float32"),
        ("ndarray", _Tracked(), "requires grad"),
        ("ndarray", np.zeros(2, bool), "came one of bool"),
        ("ndarray", np.zeros(2, complex), "came one of complex128"),
        ("ndarray", np.array(["a"]), "came one of <U1"),
        ("ndarray", np.array([None]), "came one of object"),
        ("ndarray", np.zeros(2, "M8[s]"), "came one of datetime64[s]"),
        ("ndarray", np.zeros((1,) * 64), "at most 63 dimensions, came one of 64"),
        ("ndarray:int16", np.zeros(2, np.int32), "wanted an array of int16, came one of int32"),
        ("ndarray:int16:3,4", np.zeros((4, 3), np.int16), "of shape (3, 4), came (4, 3)"),
        ("ndarray:int16:3", np.zeros((), np.int16), "of shape (3,), came ()"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(encoding: str, value: Any, text: str) -> None:
    """Type and shape are never changed in silence; the message says what was wanted and came."""
    (kind,) = MDSColumns({"x": encoding}).encodings
    with pytest.raises((TypeError, ValueError)) as caught:
        kind.encode(value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("ndarray:", "ndarray:bool", "ndarray:float", "ndarray:<u2", "ndarray::2,3"),
        *("ndarray:uint8:", "ndarray:uint8:0", "ndarray:uint8:-1", "ndarray:uint8:2,,3"),
        *("ndarray:uint8:2,", "ndarray:uint8: 2", "ndarray:uint8:2:3", "ndarray:uint8:²"),
        *(
            "ndarray:uint8:1.0",
            "ndarray:uint8:" + "9" * 5000,
            "ndarray:uint8:" + ",".join("1" * 64),
        ),
    ],
)
def test_columns_of_arrays_that_cannot_be_are_refused(text: str) -> None:
    """A wrong type or shape in the column's name is an error that shows it."""
    with pytest.raises(SchemaError, match="column 'pixels': encoding 'ndarray:"):
        MDSColumns({"pixels": text})


def test_a_fixed_shape_says_its_size() -> None:
    """Only type and shape together give every value the same number of bytes."""
    sizes = [ArrayEncoding.parse(text).size for text in ("uint16", "uint16:3,4", "float64:1")]
    assert [ArrayEncoding().size, *sizes] == [None, None, 24, 8]
