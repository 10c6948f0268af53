"""Any nesting of arrays and tensors as a small pickle and the large buffers that belong to it."""

from __future__ import annotations

import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streaming_core._columns import keep_freed_memory
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, dtype

__all__ = ["SMALL", "pack", "unpack"]

SMALL = 2048
"""Buffers below this many bytes stay in the pickle."""


def pack(payload: object) -> tuple[bytes, list[memoryview]]:
    """Return `payload` as a pickle and the buffers that it leaves out, flat and in order.

    Left out are the bytes of numpy arrays, torch tensors on the CPU, Arrow buffers, and large
    `bytes` in dicts, lists and tuples. The buffers are views of the payload. The rest is pickled
    as `multiprocessing` would do it, so the pickle may be read once only. Tensors can be written
    to where they arrive, arrays if they could be before.

    Raises `SchemaError` for values that are nested more deeply than can be pickled.
    """
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        buffers.append(raw)
        return False

    file = io.BytesIO()
    try:
        _Packer(file, 5, True, aside).dump(_wrapped(payload))  # noqa: FBT003 - as Pickler takes them
    except RecursionError as error:
        msg = (
            "a value of the batch is nested more deeply than a worker can send; leave its column "
            "out, write it as text, or read with num_workers=0"
        )
        raise SchemaError(msg) from error
    return file.getvalue(), buffers


def unpack(body: bytes, buffers: Sequence[memoryview]) -> object:
    """Return what `pack` got; arrays and tensors are views of `buffers`."""
    return pickle.loads(body, buffers=buffers)  # noqa: S301 - from our own worker


class _Packer(ForkingPickler):
    """Pickles arrays and tensors by reference to their buffers, and the rest as usual."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - anything can be pickled
        if type(obj) is np.ndarray:
            return _reduce_array(obj)
        torch = sys.modules.get("torch")  # without it there are no tensors
        if torch is not None and type(obj) is torch.Tensor:
            return _reduce_tensor(obj)
        return NotImplemented


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401 - as pickle wants it
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous or array.dtype.hasobject:
        return NotImplemented
    return np.ascontiguousarray(array).__reduce_ex__(5)


def _reduce_tensor(tensor: Tensor) -> Any:  # noqa: ANN401 - as pickle wants it
    import torch  # noqa: PLC0415 - there is a tensor, so it is loaded

    if (
        tensor.layout is not torch.strided
        or tensor.device.type != "cpu"
        or tensor.requires_grad
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.__dict__
    ):
        return NotImplemented
    shape = tuple(tensor.shape)
    flat = tensor.detach().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else b""
    return _tensor, (pickle.PickleBuffer(data), tensor.dtype, shape)


def _tensor(data: Any, kind: dtype, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401 - a buffer
    import torch  # noqa: PLC0415 - see above

    if not len(data):
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=kind).reshape(shape)


# --- large bytes ----------------------------------------------------------------------------------


class _Blobs:
    """A list of bytes, pickled by reference to their buffers."""

    __slots__ = ("values",)

    def __init__(self, values: list[bytes] | list[memoryview]) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return _blobs, tuple(map(pickle.PickleBuffer, self.values))


def _blobs(*buffers: memoryview) -> list[bytes]:
    keep_freed_memory()
    return list(map(bytes, buffers))


class _Blob:
    """Bytes, pickled by reference to their buffer."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self.value),)


def _wrapped(payload: object) -> object:
    """Return `payload` with large bytes in wrappers; pickle takes bytes into the stream itself."""
    kind = type(payload)
    if kind is bytes:
        value = cast("bytes", payload)
        return _Blob(value) if len(value) >= SMALL else value
    if kind is dict:
        return {k: _wrapped(v) for k, v in cast("dict[object, object]", payload).items()}
    if kind is tuple:
        return tuple(map(_wrapped, cast("tuple[object, ...]", payload)))
    if kind is list:
        return _wrapped_list(cast("list[object]", payload))
    return payload


def _wrapped_list(values: list[object]) -> object:
    kinds = set(map(type, values))
    if kinds == {bytes}:
        blobs = cast("list[bytes]", values)
        # A wrapper costs more than copying what is small.
        return _Blobs(blobs) if sum(map(len, blobs)) >= SMALL * len(blobs) else blobs
    if kinds == {memoryview}:  # lent, and bytes again where they arrive
        return _Blobs(cast("list[memoryview]", values))
    if kinds & {bytes, dict, tuple, list}:
        return list(map(_wrapped, values))
    return values
