"""Bytes, text, JSON and pickled objects."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streaming_core._format._mds._encoding import Encoding, came, reject_masked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._store import Buffer

__all__ = ["JSON", "Bytes", "Pickle", "Str"]

_UNPICKLING = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What pickle raises on broken bytes: its documentation names some of these, and excludes none."""


class Bytes(Encoding):
    """Bytes as they are."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return `obj`, copied if it could still change."""
        if isinstance(obj, bytes | bytearray | memoryview):
            return bytes(cast("Buffer", obj))
        msg = f"wanted bytes, came {came(obj)}"
        raise TypeError(msg)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class Str(Encoding):
    """Text as UTF-8."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the UTF-8 bytes of a str."""
        if isinstance(obj, str):
            return obj.encode()
        msg = f"wanted str, came {came(obj)}"
        raise TypeError(msg)

    def decode(self, data: bytes) -> str:
        """Return the text."""
        return data.decode()


class JSON(Encoding):
    """Any JSON value; an array is written as nested lists."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return Python's default JSON text, ASCII-escaped."""
        if isinstance(obj, np.ndarray):
            obj = _nested_lists(cast("NDArray[Any]", obj))
        return json.dumps(obj).encode()

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """Return the parsed value."""
        # Only UTF-8: from bytes, json would guess at other encodings, and let surrogates pass.
        return json.loads(data.decode())


def _nested_lists(array: NDArray[Any]) -> Any:  # noqa: ANN401 - lists, or one value
    reject_masked(array)
    if array.dtype.kind in "mMV":  # `tolist` drops units and the names of fields
        msg = f"JSON does not hold arrays of {array.dtype}; convert the array to numbers or text"
        raise TypeError(msg)
    return array.tolist()


class Pickle(Encoding):
    """Any picklable object. Reading it can run code, so readers refuse it unless allowed."""

    unsafe = True

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the pickle of `obj`."""
        try:
            return pickle.dumps(obj)
        except (pickle.PicklingError, AttributeError) as error:
            msg = f"wanted a picklable object, came {came(obj)}: {error}"
            raise TypeError(msg) from error

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - any pickled value
        """Return the unpickled object."""
        try:
            return pickle.loads(data)  # noqa: S301 - only reached where the user allowed it
        except _UNPICKLING as error:
            msg = f"cannot be unpickled: {type(error).__name__}: {error!s:.200}"
            raise ValueError(msg) from error
