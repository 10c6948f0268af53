"""N-dimensional arrays, their type and shape fixed by the column or stored with each value."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._format._mds._encoding import Encoding, came, is_a, reject_masked

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DIM_TYPES", "DTYPES", "DTYPE_CODES", "ArrayEncoding", "array_header", "as_array"]

DTYPE_CODES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}
"""The element types an array column can hold, with their codes in the format."""

DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in DTYPE_CODES.items()}
"""The element types by code."""
DIM_TYPES = ("<u1", "<u2", "<u4", "<u8")
"""The types that the dimensions of a shape can have, by the low bits of the byte before them."""

_MAX_NDIM = 63


@functools.lru_cache(maxsize=4096)
def array_header(dtype_code: int | None, shape: tuple[int, ...]) -> bytes:
    """Return what precedes the values: the type code (unless the column fixes it) and the shape."""
    largest = max(shape, default=0)
    width = next(w for w in range(4) if largest < 1 << (8 << w))
    dims = np.array(shape, DIM_TYPES[width]).tobytes()
    head = bytes([len(shape) << 2 | width])
    return (b"" if dtype_code is None else bytes([dtype_code])) + head + dims


def as_array(obj: Any) -> NDArray[Any]:  # noqa: ANN401 - any user's value
    """Return `obj` as a little-endian array whose type and shape the format can hold."""
    reject_masked(obj)
    if not is_a(obj, np.ndarray):
        if not hasattr(obj, "__array__") or is_a(obj, np.generic):
            msg = f"wanted a numpy array, came {came(obj)}"
            raise TypeError(msg)
        try:
            obj = np.asarray(obj)
        except RuntimeError as error:  # torch's answer for a tensor that needs gradients
            msg = f"wanted a numpy array, came {came(obj)}: {error}"
            raise TypeError(msg) from error
    array: NDArray[Any] = obj
    if array.dtype.name not in DTYPE_CODES:
        msg = f"wanted an array of {', '.join(DTYPE_CODES)}, came one of {array.dtype}"
        raise TypeError(msg)
    if array.ndim > _MAX_NDIM:
        msg = f"wanted an array of at most {_MAX_NDIM} dimensions, came one of {array.ndim}"
        raise ValueError(msg)
    # The values are stored little-endian and nothing in the file says otherwise.
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


class ArrayEncoding(Encoding):
    """An array; `ndarray`, `ndarray:uint16` (type fixed) or `ndarray:uint16:3,4` (shape fixed too).

    Decoded arrays are read-only views of the bytes they came from.
    """

    def __init__(self, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> None:
        """Fix the element type, and with it possibly the shape."""
        self.dtype = None if dtype is None else DTYPES[DTYPE_CODES[dtype]]
        self.shape = shape
        if self.dtype is not None and shape is not None:
            self.size = self.dtype.itemsize * math.prod(shape)

    @classmethod
    def parse(cls, arguments: str) -> ArrayEncoding:
        """Return the encoding for `<dtype>` or `<dtype>:<d0>,<d1>,…`."""
        dtype, colon, dims = arguments.partition(":")
        if dtype not in DTYPE_CODES:
            msg = f"not an element type of arrays: {dtype!r}; use one of {', '.join(DTYPE_CODES)}"
            raise ValueError(msg)
        if not colon:
            return cls(dtype)
        parts = dims.split(",")
        if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
            msg = f"not a shape: {dims!r}; give dimensions from 1 on, as in 'ndarray:{dtype}:3,4'"
            raise ValueError(msg)
        if len(parts) > _MAX_NDIM:
            msg = f"a shape of {len(parts)} dimensions; at most {_MAX_NDIM} are possible"
            raise ValueError(msg)
        return cls(dtype, tuple(int(part) for part in parts))

    def header(self, array: NDArray[Any]) -> bytes:
        """Return what precedes the values of `array`, which `as_array` has passed.

        Raises `TypeError` or `ValueError` where the array has not the column's type or shape.
        """
        if self.dtype is None:
            return array_header(DTYPE_CODES[array.dtype.name], array.shape)
        if array.dtype != self.dtype:
            msg = f"wanted an array of {self.dtype.name}, came one of {array.dtype.name}"
            raise TypeError(msg)
        if self.shape is None:
            return array_header(None, array.shape)
        if array.shape != self.shape:
            msg = f"wanted an array of shape {self.shape}, came {array.shape}"
            raise ValueError(msg)
        return b""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return header and values, in C order."""
        # The usual array needs one comparison each, so that tokens are written at memory speed.
        if type(obj) is np.ndarray and obj.dtype == self.dtype and obj.shape == self.shape:
            return obj.tobytes()
        array = as_array(obj)
        return self.header(array) + array.tobytes()

    def decode(self, data: bytes) -> NDArray[Any]:
        """Return the array, a read-only view of `data`."""
        at = 0
        dtype = self.dtype
        if dtype is None:
            dtype = DTYPES.get(data[0]) if data else None
            if dtype is None:
                msg = f"not the code of an element type: {data[:1].hex() or 'no byte at all'}"
                raise ValueError(msg)
            at = 1
        shape = self.shape
        if shape is None:
            shape, at = self._decode_shape(data, at)
        wanted = dtype.itemsize * math.prod(shape)
        if (came_bytes := len(data) - at) != wanted:
            msg = f"{came_bytes} bytes of values, but shape {shape} of {dtype.name} has {wanted}"
            raise ValueError(msg)
        return np.frombuffer(data, dtype, offset=at).reshape(shape)

    @staticmethod
    def _decode_shape(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
        if at >= len(data):
            msg = "the bytes end before the array's shape"
            raise ValueError(msg)
        ndim, width = data[at] >> 2, data[at] & 3
        end = at + 1 + (ndim << width)
        if end > len(data):
            msg = f"the bytes end within the array's shape of {ndim} dimensions"
            raise ValueError(msg)
        dims = np.frombuffer(data[at + 1 : end], DIM_TYPES[width])
        return tuple(int(dim) for dim in dims), end
