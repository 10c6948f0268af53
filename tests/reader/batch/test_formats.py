"""Every format of a batch holds the values of its samples; tensors are those of torch's collate."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.format.gathering import LIGHT, flat, gather_rows, shard_of, tables
from tests.core.format.mds.making import key
from tests.core.format.mds.values import JSON, VALUES
from tests.profiles import examples
from torch.utils.data import default_collate

from streaming_core._columns import Columns, Fixed, Objects, Ragged
from streaming_core._format._mds import DTYPE_CODES
from streaming_core.errors import SchemaError
from streaming_reader._batch import (
    Offsets,
    Padded,
    as_format,
    to_arrow,
    to_dict,
    to_numpy,
    to_torch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._format import Shard

TENSORS = sorted({*LIGHT, "pkl"} - {"uint64", "str_decimal"})
"""Encodings whose values torch may collate; it refuses numbers of uint64, and decimals."""


def columns_of(shard: Shard, *, copy: bool = True) -> Columns:
    """Return all samples of a shard by column."""
    return gather_rows(shard, copy=copy)


def same(value: Any) -> Any:
    """Return what is equal exactly where types, shapes, nesting and every bit are, NaN aside."""
    match value:
        case torch.Tensor():
            if value.is_floating_point():  # torch's way through a Python float changes some NaN
                value = torch.where(value.isnan(), torch.full_like(value, torch.nan), value)
            data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            return "tensor", value.dtype, tuple(value.shape), data
        case dict():
            return "dict", [(name, same(item)) for name, item in value.items()]
        case list() | tuple():
            return type(value).__name__, [same(item) for item in value]
        case _:
            return key(value)


def outcome(call: Callable[[], Any]) -> Any:
    """Return what comes, comparable, or that it is an error; torch's own do not say what to do."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return same(call())
    except Exception:  # noqa: BLE001 - torch's own, of any class
        return "error"


@given(table=tables(TENSORS), copy=st.booleans())
def test_tensors_are_those_of_the_default_collate(
    table: tuple[dict[str, str], list[list[dict[str, Any]]]], *, copy: bool
) -> None:
    """Any columns give the tensors, lists and nesting, or the error, that torch gives the rows."""
    columns, (samples, *_) = table
    shard = shard_of(columns, samples)
    came = outcome(lambda: to_torch(columns_of(shard, copy=copy)))
    wanted = outcome(lambda: default_collate(list(shard)))
    assert came == wanted


@pytest.mark.parametrize("form", ["{}", "ndarray", "ndarray:{}", "ndarray:{}:2,3", "ndarray 0-d"])
def test_every_dtype_collates_as_torch_does(form: str) -> None:
    """Numbers, arrays and arrays without dimensions keep their type; uint64 numbers too."""
    failing: dict[str, str] = {}
    for name in sorted(DTYPE_CODES):
        try:
            _check_dtype(name, form)
        except (AssertionError, pytest.fail.Exception) as error:
            failing[name] = str(error)
    assert not failing


def _check_dtype(name: str, form: str) -> None:
    number = np.iinfo(name).max if np.dtype(name).kind in "iu" else np.finfo(name).max
    array = np.full((2, 3), number, name)
    value = {"{}": array[0, 0], "ndarray 0-d": np.array(number, name)}.get(form, array)
    shard = shard_of({"x": form.partition(" ")[0].format(name)}, [{"x": value}] * 3)
    tensor = to_torch(columns_of(shard))["x"]
    assert tensor.dtype == getattr(torch, name)
    assert tensor.numpy().tobytes() == 3 * np.asarray(value).tobytes()
    if (name, form) == ("uint64", "{}"):
        with pytest.raises(TypeError, match="an integer is required"):
            default_collate(list(shard))
    else:
        assert same(tensor) == same(default_collate([row["x"] for row in shard]))


@settings(max_examples=examples(60))
@given(st.lists(JSON, min_size=1, max_size=4))
def test_json_values_collate_as_they_are_nested(values: list[Any]) -> None:
    """Objects and lists are collated by key and place; what differs gives torch's error."""
    shard = shard_of({"x": "json"}, [{"x": value} for value in values])
    came = outcome(lambda: to_torch(columns_of(shard)))
    assert came == outcome(lambda: default_collate(list(shard)))


def test_arrays_of_different_length_are_refused_with_what_to_do() -> None:
    """What torch cannot stack needs padding, offsets or a function of one's own."""
    shard = shard_of({"x": "ndarray"}, [{"x": np.arange(n)} for n in (2, 3)])
    with pytest.raises(SchemaError, match=r"ragged=.padded."):
        to_torch(columns_of(shard))


def test_tensors_share_the_memory_of_their_columns() -> None:
    """No copy is made of what the columns own, and what they do not own is never shared."""
    shard = shard_of({"x": "ndarray:int64:2"}, [{"x": np.arange(2)}] * 3)
    columns = columns_of(shard)
    column = columns["x"]
    assert isinstance(column, Fixed)
    assert to_torch(columns)["x"].data_ptr() == column.values.ctypes.data
    to_torch(columns_of(shard, copy=False))["x"].fill_(9)
    assert all((row["x"] == np.arange(2)).all() for row in shard)


# --- values of different length -------------------------------------------------------------------


@given(flat())
def test_padded_and_offsets_hold_the_arrays(arrays: list[np.ndarray[Any, Any]]) -> None:
    """Cut by lengths or offsets, both forms give the arrays back, in NumPy and in torch."""
    data = np.concatenate(arrays)
    offsets = np.cumsum([0, *(array.nbytes for array in arrays)])
    column = Ragged(data.view(np.uint8), offsets, "array", data.dtype)
    columns = Columns(len(arrays), {"x": column})
    for convert in (to_numpy, to_torch):
        padded, flat_ = convert(columns, "padded")["x"], convert(columns, "offsets")["x"]
        assert isinstance(padded, Padded)
        assert isinstance(flat_, Offsets)
        values, lengths = map(np.asarray, padded)
        elements, bounds = map(np.asarray, flat_)
        assert values.dtype == elements.dtype == data.dtype
        assert values.shape == (len(arrays), max(map(len, arrays)))
        for i, array in enumerate(arrays):
            assert np.array_equal(values[i, : lengths[i]], array)
            assert not values[i, lengths[i] :].any()
            assert np.array_equal(elements[bounds[i] : bounds[i + 1]], array)


@given(st.lists(st.text(), max_size=5), st.integers(0, 3))
def test_texts_and_bytes_have_both_forms(texts: list[str], skip: int) -> None:
    """Padded UTF-8 and end-to-end UTF-8 decode to the texts, also of a slice of the columns."""
    samples = [{"b": text.encode(), "s": text} for text in texts]
    columns = columns_of(shard_of({"b": "bytes", "s": "str"}, samples)).slice(skip, 9)
    wanted = [text.encode() for text in texts[skip:]]
    padded, ends = to_numpy(columns, "padded"), to_numpy(columns, "offsets")
    for name in ("b", "s"):
        rows = zip(*padded[name], strict=True)
        assert [row[:length].tobytes() for row, length in rows] == wanted
        values, bounds = ends[name]
        came = [values[a:b].tobytes() for a, b in itertools.pairwise(bounds)]
        assert came == wanted
        assert values.flags.writeable
    assert to_torch(columns)["s"] == texts[skip:]


# --- the other formats ----------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(tables())
def test_lists_arrays_and_rows_agree(
    table: tuple[dict[str, str], list[list[dict[str, Any]]]],
) -> None:
    """The dict and rows formats hold the very values, NumPy's the same ones stacked."""
    columns, (samples, *_) = table
    shard = shard_of(columns, samples)
    batch = columns_of(shard)
    rows = list(shard)
    assert key(as_format(batch, "rows")) == key(rows)
    lists = as_format(batch, "dict")
    arrays = as_format(batch, "numpy")
    for name in sorted(columns):
        wanted = [row[name] for row in rows]
        assert key(lists[name]) == key(wanted)
        came = arrays[name]
        if isinstance(came, np.ndarray):
            assert len({(np.asarray(value).dtype, np.shape(value)) for value in wanted}) == 1
            assert came.tobytes() == b"".join(np.asarray(value).tobytes() for value in wanted)
        else:
            assert key(came) == key(wanted)


ARROW = ["bytes", "str", "int", *DTYPE_CODES, "ndarray:int16:2,3", "ndarray", "str_int"]


@pytest.mark.parametrize("encoding", ARROW)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_arrow_holds_the_values(encoding: str, data: st.DataObject) -> None:
    """A table's Python values are those of the samples, whatever the column."""
    strategy = VALUES[encoding]
    if encoding == "str_int":
        strategy = st.integers(-(2**63), 2**63 - 1)
    if encoding == "ndarray":
        drawn = data.draw(flat())
        if drawn[0].dtype == np.float16:
            drawn = [array.astype(np.float32) for array in drawn]
    else:
        drawn = data.draw(st.lists(strategy, min_size=1, max_size=4))
    shard = shard_of({"x": encoding}, [{"x": value} for value in drawn])
    table = to_arrow(columns_of(shard))
    table.validate(full=True)
    wanted = [value.tolist() if hasattr(value, "tolist") else value for value in drawn]
    assert repr(table.column("x").to_pylist()) == repr(wanted)


def test_arrow_keeps_shapes_without_elements() -> None:
    """Arrays with a dimension of nothing come as lists of that length."""
    for shape in ((0,), (2, 0), (0, 3)):
        batch = Columns(2, {"x": Fixed(np.zeros((2, *shape), np.int16), "array")})
        assert to_arrow(batch).column("x").to_pylist() == np.zeros((2, *shape)).tolist()


def test_arrow_names_the_column_it_cannot_hold() -> None:
    """Values without a common type are an error that says which column."""
    with pytest.raises(SchemaError, match="column 'x': its values have no common Arrow type"):
        to_arrow(Columns(2, {"x": Objects([1, "a"])}))
    with pytest.raises(SchemaError, match=r"column 'x': .*surrogates"):
        to_arrow(Columns(1, {"x": Objects([{"a": "\ud800"}])}))
    moment = np.datetime64(1, "us")  # pyarrow ends the process if a number of NumPy follows
    number = np.uint8(1)
    for mixed in (
        [moment, number],
        [(moment, number)],
        [[moment], [[number]], [number]],
        [{"a": [moment]}, {"b": number, "a": [number]}],
        [np.array([moment]), np.array([number])],
        [np.array([moment, number], object)],
    ):
        with pytest.raises(SchemaError, match=r"column 'x': .* times beside datetime64, uint8"):
            to_arrow(Columns(len(mixed), {"x": Objects(mixed)}))
    apart = to_arrow(Columns(1, {"x": Objects([{"a": moment, "b": number}])}))
    assert str(apart.schema.field("x").type) == "struct<a: timestamp[us], b: uint8>"
    times = to_arrow(Columns(2, {"x": Objects([moment, None])}))
    assert times.column("x").to_pylist()[1] is None
    assert isinstance(to_arrow(Columns(1, {"x": Objects([{"a": 1}])})), pa.Table)


def test_formats_that_are_not_there_are_named() -> None:
    """The error lists what there is."""
    empty = Columns(0, {})
    with pytest.raises(SchemaError, match="batch_format: expected one of torch, numpy"):
        as_format(empty, "nope")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="ragged: expected one of list, padded"):
        as_format(empty, "numpy", "nope")  # type: ignore[arg-type]


def test_a_batch_of_nothing_has_every_format() -> None:
    """No samples give empty columns, not an error."""
    shard = shard_of({"i": "int", "s": "str", "j": "json"}, [{"i": 1, "s": "a", "j": 2}])
    empty = gather_rows(shard, [])
    assert to_dict(empty) == {"i": [], "j": [], "s": []}
    assert to_torch(empty)["i"].shape == (0,)
    assert to_torch(empty, "padded")["s"].values.shape == (0, 0)
    assert to_arrow(empty).num_rows == 0


@pytest.mark.process
def test_torch_and_arrow_are_loaded_only_when_used() -> None:
    """Without them all other formats work, and theirs say what to install."""
    code = """
import sys
sys.modules["torch"] = sys.modules["torch.utils.data"] = sys.modules["pyarrow"] = None
from streaming_core._columns import Columns, Objects, Fixed
from streaming_core.errors import MissingExtraError
from streaming_reader._batch import as_format
import numpy as np
batch = Columns(1, {"x": Objects([1]), "y": Fixed(np.array([1]), "int")})
assert as_format(batch, "numpy")["x"] == as_format(batch, "dict")["x"] == [1]
for name, extra in (("torch", "torch"), ("arrow", "parquet")):
    try:
        as_format(batch, name)
    except MissingExtraError as error:
        assert f"streaming-core[{extra}]" in str(error), error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
