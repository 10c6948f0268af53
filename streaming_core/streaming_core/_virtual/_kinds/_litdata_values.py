"""How litData stores values, and which columns they become."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
import numpy as np

from streaming_core._extras import require
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Layout", "Leaf", "layout_of", "leaf_array", "leaf_of", "leaf_type", "parts_of"]

_WORD: Final = 4
_MOST_DIMS: Final = 8
_MOST_EMPTY: Final = 1 << 20
"""Lists within an empty array, whose shape need not have bytes to show for it."""
_FIXED: Final = {"int": "<i8", "float": "<f8", "bool": "|b1"}
_BYTES: Final = frozenset({"bytes", "jpeg", "pil"})
_NUMPY: Final = {
    0: "|i1",
    1: "<i2",
    2: "<i4",
    3: "<i8",
    4: "|u1",
    5: "<u2",
    6: "<u4",
    7: "<u8",
    8: "<f2",
    9: "<f4",
    10: "<f8",
    13: "|b1",
}
"""The types that an array's first number tells."""
_TENSOR: Final = {
    1: "<f4",
    3: "<f8",
    9: "<f2",
    11: "|u1",
    12: "|i1",
    14: "<i2",
    16: "<i4",
    18: "<i8",
    19: "|b1",
}
"""The same of a tensor, with numbers of its own."""


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """One value of every item."""

    name: str
    """Its column."""
    serializer: str
    """How it is stored, as the index names it."""
    kind: Literal["number", "text", "bytes", "array"]
    dtype: str = ""
    """NumPy's name of the type of numbers."""
    dims: int = 0
    """How many dimensions arrays have."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if it cannot be, which an index that is damaged may say."""
        family, _, code = self.serializer.partition(":")
        known = {
            "number": set(_FIXED.values()),
            "array": set((_codes(family) or {}).values()),
        }.get(self.kind, {""})
        dims = range(1, 2) if code else range(_MOST_DIMS + 1)
        if self.dtype not in known or self.dims not in (dims if self.kind == "array" else (0,)):
            msg = f"no values of type {self.dtype!r} with {self.dims} dimensions"
            raise ValueError(msg)


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """What an index says of all items."""

    names: list[str]
    serializers: list[str]
    is_bare: bool = False
    """Whether items are one value each, without its size before it, as token blocks are."""


def layout_of(data: bytes, where: str) -> Layout:
    """Return what an `index.json` says.

    Raises:
        SourceFormatError: It is none of litData, or says something that cannot be read.
    """
    try:
        config = json.loads(data)["config"]
        serializers = cast("list[str]", config["data_format"])
        spec = config["data_spec"]
        root = json.loads(spec)[1] if isinstance(spec, str) else None
        names = ["value"] if root is None else list(_names(root, ""))
        fits = [type(one) for one in serializers] == [str] * len(names) and type(
            serializers
        ) is list
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        msg = f"{where}: not an index of litData: {type(error).__name__}: {error!s:.200}"
        raise SourceFormatError(msg) from error
    if not fits or len(set(names)) != len(names):
        msg = (
            f"{where}: the index has values {names!r:.300} stored as {serializers!r:.300}, which "
            "do not belong to each other"
        )
        raise SourceFormatError(msg)
    if config.get("encryption"):
        msg = f"{where}: the chunks are encrypted, and cannot be read as they lie"
        raise SourceFormatError(msg)
    return Layout(names, serializers, config.get("item_loader") == "TokensLoader")


def parts_of(item: memoryview, layout: Layout, where: str) -> list[memoryview]:
    """Return the bytes of each value of an item."""
    if layout.is_bare:
        return [item]
    count = len(layout.names)
    sizes = [int.from_bytes(item[at : at + _WORD], "little") for at in range(0, _WORD * count, 4)]
    begin = _WORD * count
    if begin + sum(sizes) != len(item):
        msg = f"{where}: an item of {len(item)} bytes has values of {sizes!r:.200}; it is damaged"
        raise SourceFormatError(msg)
    found: list[memoryview] = []
    for size in sizes:
        found.append(item[begin : begin + size])
        begin += size
    return found


def leaf_of(name: str, serializer: str, example: memoryview, where: str, *, unknown: str) -> Leaf:
    """Return what a value is, of which the first item has `example`.

    Raises `SourceFormatError` for what cannot be read, unless `unknown` is `bytes`.
    """
    if serializer in _FIXED:
        return Leaf(name, serializer, "number", _FIXED[serializer])
    if serializer == "str":
        return Leaf(name, serializer, "text")
    if serializer in _BYTES:
        return Leaf(name, serializer, "bytes")
    family, _, code = serializer.partition(":")
    codes = _codes(family)
    what = f"stored by {serializer!r}"
    if codes is not None:
        number, dims = (int(code), 1) if code.isdigit() else _told(example, family)
        if number in codes and dims <= _MOST_DIMS:
            return Leaf(name, serializer, "array", codes[number], dims)
        what = f"{what} as type {number} with {dims} dimensions"
    if unknown == "bytes":
        return Leaf(name, serializer, "bytes")
    danger = ", which can run code when it is read" if family == "pickle" else ""
    msg = (
        f"{where}: the values {name!r} are {what}{danger}; what is read are "
        f"{', '.join([*_FIXED, 'str', *sorted(_BYTES)])}, arrays and tensors of real numbers. "
        'With format_options={"unknown": "bytes"} such columns are the bytes as they are stored'
    )
    raise SourceFormatError(msg)


def leaf_type(leaf: Leaf) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the Arrow type of a value."""
    arrow = _arrow()
    if leaf.kind == "text":
        return arrow.large_string()
    if leaf.kind == "bytes":
        return arrow.large_binary()
    kind = arrow.from_numpy_dtype(np.dtype(leaf.dtype))
    for _ in range(leaf.dims):
        kind = arrow.large_list(kind)
    return kind


def leaf_array(leaf: Leaf, parts: Sequence[memoryview], where: str) -> Any:  # noqa: ANN401 - see above
    """Return the values of some items as an Arrow array.

    Raises `SourceFormatError` if one is not as the first item's is.
    """
    arrow = _arrow()
    if leaf.kind == "bytes":
        return arrow.array(parts, arrow.large_binary())
    if leaf.kind == "text":
        try:
            return arrow.array(parts, arrow.large_binary()).cast(arrow.large_string())
        except arrow.ArrowException as error:
            msg = f"{where}: a value {leaf.name!r} is no text in UTF-8"
            raise SourceFormatError(msg) from error
    dtype = np.dtype(leaf.dtype)
    if leaf.kind == "number":
        if any(len(part) != dtype.itemsize for part in parts):
            msg = f"{where}: a value {leaf.name!r} has not the {dtype.itemsize} bytes of a number"
            raise SourceFormatError(msg)
        return arrow.array(np.frombuffer(b"".join(parts), dtype))
    shapes: list[tuple[int, ...]] = []
    numbers: list[memoryview] = []
    for part in parts:
        shape, data = _shape_of(leaf, part, where)
        shapes.append(shape)
        numbers.append(data)
    array = arrow.array(np.frombuffer(b"".join(numbers), dtype))
    for axis in reversed(range(leaf.dims)):
        counts = _repeated(shapes, axis)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        array = arrow.LargeListArray.from_arrays(offsets, array)
    return array


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="chunks of litData")


def _codes(family: str) -> dict[int, str] | None:
    if family.endswith("numpy"):
        return _NUMPY if family in {"numpy", "no_header_numpy"} else None
    return _TENSOR if family in {"tensor", "no_header_tensor"} else None


def _told(data: memoryview, family: str) -> tuple[int, int]:
    """Return the type and number of dimensions that the head of an array tells; -1 if none."""
    if len(data) < 2 * _WORD:
        return -1, -1
    order = _order(family)
    return int.from_bytes(data[:4], order), int.from_bytes(data[4:8], order)


def _order(family: str) -> Literal["big", "little"]:
    """Return how the numbers in a head are written, which differs."""
    return "big" if family == "tensor" else "little"


def _shape_of(leaf: Leaf, part: memoryview, where: str) -> tuple[tuple[int, ...], memoryview]:
    """Return the shape of an array, and the bytes of its numbers."""
    family, _, code = leaf.serializer.partition(":")
    width = np.dtype(leaf.dtype).itemsize
    shape: tuple[int, ...]
    if code:
        shape, data = (len(part) // width,), part
        is_same = True
    else:
        number, dims = _told(part, family)
        codes = _codes(family) or {}
        is_same = codes.get(number) == leaf.dtype and dims == leaf.dims
        begin = 2 * _WORD + _WORD * leaf.dims
        order = _order(family)
        shape = tuple(
            int.from_bytes(part[at : at + _WORD], order) for at in range(2 * _WORD, begin, _WORD)
        )
        data = part[begin:]
    is_sane = math.prod(shape) > 0 or math.prod(max(1, size) for size in shape) <= _MOST_EMPTY
    if not is_same or not is_sane or math.prod(shape) * width != len(data):
        msg = (
            f"{where}: an array {leaf.name!r} of {len(part)} bytes, shape {shape}, is not of type "
            f"{leaf.dtype} with {leaf.dims} dimensions, as that of the chunk's first item"
        )
        raise SourceFormatError(msg)
    return shape, data


def _repeated(shapes: Sequence[tuple[int, ...]], axis: int) -> NDArray[np.int64]:
    """Return the lengths of all lists along one axis."""
    sizes = np.array([shape[axis] for shape in shapes], np.int64)
    return np.repeat(sizes, [math.prod(shape[:axis]) for shape in shapes])


def _names(spec: Any, prefix: str) -> Iterator[str]:  # noqa: ANN401 - parsed JSON
    """Yield the names of an item's values: keys and numbers, with dots between levels."""
    kind = spec["type"]
    if kind is None:
        yield prefix or "value"
        return
    children = spec["children_spec"]
    keys = json.loads(spec["context"]) or range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _names(child, f"{prefix}.{key}" if prefix else str(key))
