"""Every way to write the same samples gives the same files, and they read back."""

from __future__ import annotations

import itertools
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.golden import same_value
from tests.profiles import examples

from streaming_core import (
    CSVWriter,
    JSONWriter,
    MDSWriter,
    TSVWriter,
    XSVWriter,
    load_index,
    open_store,
)
from streaming_core._read import iterate_samples

if TYPE_CHECKING:
    from collections.abc import Callable

Column = tuple[str, st.SearchStrategy[Any]]


def _scalar(name: str) -> Column:
    return name, hnp.from_dtype(np.dtype(name))


def _array(draw_dtype: str, shape: Any = None) -> st.SearchStrategy[Any]:
    shapes = shape or hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return hnp.arrays(draw_dtype, shapes)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
COLUMNS: list[Column] = [
    ("bytes", st.binary(max_size=40)),
    ("str", _TEXT),
    ("int", st.integers(-(2**63), 2**63 - 1)),
    ("str_int", st.integers(-(10**40), 10**40)),
    ("str_float", st.floats()),
    ("str_decimal", st.decimals(allow_nan=False).map(Decimal)),
    ("json", _JSON),
    ("ndarray", st.sampled_from(["u1", "i2", "f4", "f8", "u8"]).flatmap(_array)),
    ("ndarray:uint16", _array("u2")),
    ("ndarray:float32:2,3", _array("f4", (2, 3))),
    *(_scalar(name) for name in ("uint8", "uint16", "uint32", "uint64")),
    *(_scalar(name) for name in ("int8", "int16", "int32", "int64")),
    *(_scalar(name) for name in ("float16", "float32", "float64")),
]


@st.composite
def _data(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5))
    names = draw(st.lists(_TEXT, min_size=len(chosen), max_size=len(chosen), unique=True))
    columns = {name: encoding for name, (encoding, _) in zip(names, chosen, strict=True)}
    values = {name: strategy for name, (_, strategy) in zip(names, chosen, strict=True)}
    return columns, draw(st.lists(st.fixed_dictionaries(values), max_size=25))


def _write(
    folder: Path,
    columns: dict[str, str],
    feed: Callable[[MDSWriter], None],
    **options: Any,
) -> dict[str, bytes]:
    with MDSWriter(out=folder, columns=columns, **options) as writer:
        feed(writer)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@settings(max_examples=examples(60))
@given(
    data=_data(),
    limit=st.sampled_from([250, 400, 1000, None]),
    cuts=st.lists(st.integers(0, 25), max_size=3),
    compression=st.sampled_from([None, "zstd:1", "gz:1"]),
)
def test_write_and_write_batch_and_any_threads_give_the_same_files(
    data: tuple[dict[str, str], list[dict[str, Any]]],
    limit: int | None,
    cuts: list[int],
    compression: str | None,
) -> None:
    """One by one, in batches of any size, mixed, with 1, 2 and 8 threads: the same bytes."""
    columns, samples = data
    bounds = sorted({0, len(samples), *(min(cut, len(samples)) for cut in cuts)})
    pieces = [samples[a:b] for a, b in itertools.pairwise(bounds)]

    def one_by_one(writer: MDSWriter) -> None:
        for sample in samples:
            writer.write(sample)

    def in_batches(writer: MDSWriter) -> None:
        for piece in pieces:
            writer.write_batch({name: [sample[name] for sample in piece] for name in columns})

    def mixed(writer: MDSWriter) -> None:
        for i, piece in enumerate(pieces):
            if i % 2:
                writer.write_batch({name: [sample[name] for sample in piece] for name in columns})
            else:
                for sample in piece:
                    writer.write(sample)

    options = {"size_limit": limit, "compression": compression, "hashes": ["sha1"]}
    with tempfile.TemporaryDirectory() as root:
        results = [
            _write(Path(root, str(i)), columns, feed, max_workers=workers, **options)
            for i, (feed, workers) in enumerate(
                [(one_by_one, 1), (one_by_one, 2), (one_by_one, 8), (in_batches, 2), (mixed, 1)]
            )
        ]
        table = load_index(Path(root, "0"))
        found = list(iterate_samples(open_store(Path(root, "0")), table))
    assert all(result == results[0] for result in results)
    assert len(found) == len(samples)
    for came, wanted in zip(found, samples, strict=True):
        assert set(came) == set(columns)
        assert all(same_value(came[name], wanted[name]) for name in columns), (came, wanted)


@pytest.mark.parametrize("encoding", ["int", "int64", "uint8", "float64", "float32"])
def test_arrays_of_any_type_are_written_as_their_elements_are(
    tmp_path: Path, encoding: str, files: Any
) -> None:
    """A whole array and its elements give the same bytes, or both are refused."""
    differing = {}
    for number, dtype in enumerate(["u1", "u2", "i4", "i8", "f4", "f8", ">i4", ">f8", "?"]):
        values = np.array([0, 1, 5, 77], dtype)
        outcomes: list[Any] = []
        for by in ("rows", "batch"):
            folder = tmp_path / f"{by}-{number}"
            try:
                with MDSWriter(out=folder, columns={"v": encoding}) as writer:
                    if by == "batch":
                        writer.write_batch({"v": values})
                    for value in values if by == "rows" else []:
                        writer.write({"v": value})
                outcomes.append(files(folder))
            except ValueError as error:
                outcomes.append(type(error))
        if outcomes[0] != outcomes[1]:
            differing[dtype] = outcomes
    assert not differing


@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:uint16", "ndarray:uint16:2,3"])
@pytest.mark.parametrize("order", ["C", "F", "strided", "big-endian", "read-only"])
def test_stacked_arrays_of_any_layout_equal_single_ones(
    tmp_path: Path, encoding: str, order: str, files: Any
) -> None:
    """Memory order, strides and byte order of the caller's arrays leave no trace."""
    stack = np.arange(5 * 2 * 3, dtype=np.uint16).reshape(5, 2, 3)
    changed = {
        "C": stack,
        "F": np.asfortranarray(stack),
        "strided": np.repeat(stack, 2, axis=2)[:, :, ::2],
        "big-endian": stack.astype(">u2"),
        "read-only": np.frombuffer(stack.tobytes(), np.uint16).reshape(stack.shape),
    }[order]
    with MDSWriter(out=tmp_path / "rows", columns={"v": encoding, "n": "int"}) as writer:
        for i, value in enumerate(stack):
            writer.write({"v": value, "n": i})
    with MDSWriter(out=tmp_path / "batch", columns={"v": encoding, "n": "int"}) as writer:
        writer.write_batch({"v": changed, "n": range(5)})
    assert files(tmp_path / "rows") == files(tmp_path / "batch")


@pytest.mark.parametrize(
    ("kind", "options"),
    [(JSONWriter, {}), (CSVWriter, {}), (TSVWriter, {}), (XSVWriter, {"separator": "||"})],
)
def test_text_writers_give_the_same_files_both_ways(
    tmp_path: Path, kind: Any, options: dict[str, Any], files: Any, read_all: Any
) -> None:
    """Lines and columns of lines are the same data set."""
    samples = [{"a": i, "s": f"é {i}", "f": i / 4} for i in range(200)]
    columns = {"a": "int", "s": "str", "f": "float"}
    with kind(out=tmp_path / "rows", columns=columns, size_limit=700, **options) as writer:
        for sample in samples:
            writer.write(sample)
    with kind(out=tmp_path / "batch", columns=columns, size_limit=700, **options) as writer:
        writer.write_batch({name: [sample[name] for sample in samples] for name in columns})
    assert files(tmp_path / "rows") == files(tmp_path / "batch")
    assert read_all(tmp_path / "rows") == samples


def test_arrays_may_be_reused_at_once(tmp_path: Path, read_all: Any) -> None:
    """A caller's buffer that changes after `write` and `write_batch` does not change the data."""
    one, many = np.zeros(4, np.int32), np.zeros((3, 4), np.int32)
    with MDSWriter(out=tmp_path / "d", columns={"v": "ndarray"}) as writer:
        for i in range(3):
            one[:] = i
            writer.write({"v": one})
        for i in range(2):
            many[:] = 10 + i
            writer.write_batch({"v": many})
        one[:] = many[:] = -1
    found = [int(sample["v"][0]) for sample in read_all(tmp_path / "d")]
    assert found == [0, 1, 2, 10, 10, 10, 11, 11, 11]


@pytest.mark.parametrize("room", [0, 100, 1 << 24])
@pytest.mark.parametrize("compression", [None, "zstd:1"])
def test_files_do_not_depend_on_the_room_kept_for_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Any, room: int, compression: str | None
) -> None:
    """A header that does not fit before the records goes its own way to the same file."""
    samples = [{"a": i, "b": f"{i}" * (i % 9)} for i in range(300)]
    for name, kept in (("usual", None), ("other", room)):
        if kept is not None:
            monkeypatch.setattr("streaming_writer._assembly._HEADER_ROOM", kept)
        with MDSWriter(
            out=tmp_path / name,
            columns={"a": "int", "b": "str"},
            size_limit=2000,
            compression=compression,
        ) as writer:
            for sample in samples:
                writer.write(sample)
    assert files(tmp_path / "usual") == files(tmp_path / "other")
