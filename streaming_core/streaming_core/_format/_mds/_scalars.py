"""Numbers: fixed-size integers and floats, and numbers as text."""

from __future__ import annotations

import operator
import struct
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeGuard

import numpy as np

from streaming_core._format._mds._encoding import Encoding, came, is_a, reject_masked

__all__ = ["SCALARS", "Int", "Scalar", "StrDecimal", "StrFloat", "StrInt", "is_scalar"]

_FLOAT64: Final = np.dtype("<f8")
_MOST_FLOAT: Final = 10_000
"""Bytes of a float's text; the longest that an exact float has is a tenth of it."""


def _single(obj: Any) -> Any:  # noqa: ANN401 - any user's value
    """Unwrap an array of exactly one element; other values pass."""
    if not is_a(obj, np.ndarray) or obj.size != 1:
        return obj
    reject_masked(obj)
    # Not by item(), whose way through a Python float would change the bits of some NaN.
    return obj.reshape(())[()]


def _whole(obj: Any) -> int:  # noqa: ANN401 - any user's value
    """Return `obj` as an int if that loses nothing."""
    obj = _single(obj)
    if is_a(obj, np.bool_) or (is_a(obj, float, np.floating) and obj.is_integer()):
        return int(obj)
    try:
        # A plain int: the text of a bool or an enum's member is no number.
        return int(operator.index(obj))
    except TypeError:
        msg = f"wanted a whole number, came {came(obj)}"
        raise TypeError(msg) from None


def _real(obj: Any) -> Any:  # noqa: ANN401 - any user's value
    """Return `obj` as a number that numpy's float types take."""
    if type(obj) is float:
        return obj
    obj = _single(obj)
    if is_a(obj, float, int, np.floating, np.integer, np.bool_) and not is_a(obj, np.timedelta64):
        return obj
    if hasattr(obj, "__float__") and not is_a(obj, np.ndarray, np.generic):
        try:
            value = float(obj)
        except (RuntimeError, TypeError, ValueError):  # such as a tensor of several elements
            pass
        else:
            if np.isinf(value) and obj != value:  # a Decimal beyond every float
                msg = f"expected a number within the range of float64, got {came(obj)}"
                raise OverflowError(msg)
            return value
    msg = f"wanted a real number, came {came(obj)}"
    raise TypeError(msg)


def _nearest(value: Any, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - a number in and out
    """Return the float of `dtype` that is nearest to a real number, of whole ones the same number.

    Raises `OverflowError` beyond the range of `dtype`, and for a whole number that it cannot hold.
    """
    try:
        with np.errstate(over="ignore"):
            result = dtype.type(value)
    except OverflowError:  # an int beyond every float
        result = dtype.type(np.inf)
    if np.isinf(result) and not (is_a(value, float, np.floating) and np.isinf(value)):
        msg = f"wanted {dtype.name} up to {np.finfo(dtype).max}, came {came(value)}"
        raise OverflowError(msg)
    if is_a(value, int, np.integer) and int(result) != int(value):
        msg = (
            f"expected a number that {dtype.name} holds exactly, got {came(value)}, which would "
            f"become {int(result)}; convert it with float(…) if that is meant, or declare the "
            "column as int or str_int"
        )
        raise OverflowError(msg)
    return result


class Scalar(Encoding):
    """A number of one numpy type, little-endian; decodes to a numpy scalar."""

    dtype: ClassVar[np.dtype[Any]]

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the bytes of a number that fits the type without loss of magnitude."""
        if self.dtype.kind == "f":
            return bytes(_nearest(_real(obj), self.dtype).tobytes())
        value = _whole(obj)
        info = np.iinfo(self.dtype)
        if not info.min <= value <= info.max:
            msg = f"wanted {self.dtype.name} in [{info.min}, {info.max}], came {came(value)}"
            raise OverflowError(msg)
        return value.to_bytes(self.dtype.itemsize, "little", signed=self.dtype.kind == "i")

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a numpy scalar of `dtype`
        """Return the numpy scalar."""
        (value,) = np.frombuffer(data, self.dtype)
        return value


def _scalar(name: str) -> type[Scalar]:
    dtype = np.dtype(name).newbyteorder("<")
    return type(
        name.capitalize(),
        (Scalar,),
        {
            "dtype": dtype,
            "size": dtype.itemsize,
            "__doc__": f"A little-endian {name}; decodes to a numpy scalar.",
            "__module__": __name__,
        },
    )


SCALARS: dict[str, type[Scalar]] = {
    name: _scalar(name)
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
}
"""The fixed-size numeric encodings by name."""

_OWN: Final = frozenset(SCALARS.values())


def is_scalar(encoding: Encoding) -> TypeGuard[Scalar]:
    """Say whether `encoding` is one of `SCALARS`; what users derive from these may differ."""
    return type(encoding) in _OWN


class Int(Encoding):
    """A whole number as int64; decodes to a Python int."""

    size = 8
    _packer = struct.Struct("<q")

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return eight bytes."""
        value = _whole(obj)
        try:
            return self._packer.pack(value)
        except struct.error:
            msg = f"wanted an int of 64 bits, came {came(value)}; use 'str_int' for larger ones"
            raise OverflowError(msg) from None

    def decode(self, data: bytes) -> int:
        """Return the Python int."""
        (value,) = self._packer.unpack(data)
        return int(value)


class StrInt(Encoding):
    """A whole number of any size as decimal text."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the decimal digits."""
        return str(_whole(obj)).encode()

    def decode(self, data: bytes) -> int:
        """Return the Python int."""
        text = _digits(data, "whole number")
        try:
            return int(text)
        except ValueError as error:
            # Python limits the digits, because the time to read them grows with their square.
            msg = f"not the text of a whole number: {came(text)} ({error!s:.200})"
            raise ValueError(msg) from None


class StrFloat(Encoding):
    """A Python float as its shortest exact text."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the text that Python's `str` gives for the float."""
        return str(float(_nearest(_real(obj), _FLOAT64))).encode()

    def decode(self, data: bytes) -> float:
        """Return the Python float."""
        if len(data) > _MOST_FLOAT:
            msg = f"not the text of a float: {len(data)} bytes, {came(data)}"
            raise ValueError(msg)
        text = _digits(data, "float")
        try:
            return float(text)
        except ValueError:  # its message would repeat all that came
            msg = f"not the text of a float: {came(text)}"
            raise ValueError(msg) from None


class StrDecimal(Encoding):
    """A `decimal.Decimal` as its text."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the text of the Decimal."""
        if not isinstance(obj, Decimal):
            msg = f"wanted a decimal.Decimal, came {came(obj)}"
            raise TypeError(msg)
        return str(obj).encode()

    def decode(self, data: bytes) -> Decimal:
        """Return the Decimal."""
        text = _digits(data, "decimal")
        try:
            return Decimal(text)
        except ArithmeticError:
            msg = f"not the text of a decimal: {came(text)}"
            raise ValueError(msg) from None


def _digits(data: bytes, kind: str) -> str:
    """Return `data` as text; an error shows little of it, however much there is."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        msg = f"not the text of a {kind}: {came(data)}"
        raise ValueError(msg) from None
