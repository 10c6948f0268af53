"""Values of every encoding, to be drawn by hypothesis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from PIL import Image

from streaming_core._format._mds import DTYPE_CODES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["JSON", "VALUES", "arrays", "little", "picture"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


DTYPES = st.sampled_from(sorted(DTYPE_CODES))
SHAPES = nps.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Return an array of any type, shape, byte order and layout, with any bits in its values."""
    dtype, shape = np.dtype(draw(DTYPES)), draw(SHAPES)
    size = dtype.itemsize * int(np.prod(shape))
    array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    if draw(st.booleans()):
        array = array.astype(dtype.newbyteorder(">"))
    layout = draw(st.sampled_from(["C", "F", "reversed", "strided", "transposed"]))
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "transposed":
        return array.T
    if layout == "reversed" and array.ndim:
        return array[::-1]
    if layout == "strided" and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    return array


def little(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array` as it is to come back."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).reshape(array.shape)


def picture(mode: str = "RGB", width: int = 4, height: int = 3, start: int = 0) -> Image.Image:
    """Return an image whose pixels differ."""
    size = len(Image.new(mode, (width, height)).tobytes())
    data = bytes((start + 7 * i) % 256 for i in range(size))
    return Image.frombytes(mode, (width, height), data)


def _scalars(name: str) -> SearchStrategy[Any]:
    size = np.dtype(name).itemsize
    return st.binary(min_size=size, max_size=size).map(lambda data: np.frombuffer(data, name)[0])


def _fixed(name: str) -> SearchStrategy[Any]:
    size = 6 * np.dtype(name).itemsize
    data = st.binary(min_size=size, max_size=size)
    return data.map(lambda data: np.frombuffer(data, name).reshape(2, 3))


VALUES: dict[str, SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "str": st.text(),
    "int": st.integers(-(2**63), 2**63 - 1),
    **{name: _scalars(name) for name in DTYPE_CODES},
    "str_int": st.integers(),
    "str_float": st.floats(allow_nan=False),
    "str_decimal": st.decimals(),
    "json": JSON,
    "pkl": JSON | st.tuples(st.binary()),
    "ndarray": arrays().map(little),
    **{f"ndarray:{name}:2,3": _fixed(name) for name in DTYPE_CODES},
    "pil": st.builds(picture, st.sampled_from(["L", "RGB", "1"]), st.integers(0, 9)),
    "png": st.builds(picture, st.sampled_from(["L", "RGB", "1"]), st.integers(1, 9)),
    "list[pil]": st.lists(st.builds(picture), max_size=2),
}
