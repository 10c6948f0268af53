"""Columns of one name and several types: what cannot be in one batch is refused at once."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import (
    JSONWriter,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    merge_index,
)
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

_MDS: dict[str, list[Any]] = {
    "int": [1, 2],
    "uint8": [3, 4],
    "float32": [0.5, 1.5],
    "str_int": [5, 6],
    "str": ["a", "bcd"],
    "bytes": [b"x", b"yz"],
    "ndarray": [np.arange(3), np.arange(3.0)],
    "ndarray:int64": [np.array(5), np.array(6)],
    "ndarray:int16:2": [np.zeros(2, np.int16), np.ones(2, np.int16)],
    "json": [{"a": 1}, {"a": 2}],
    "pkl": [3, 4],
}
_LINES: dict[str, list[Any]] = {"str": ["a", "b"], "int": [1, 2], "float": [0.5, 0.25]}
_ARROW: dict[str, pa.Array] = {
    "int64": pa.array([1, 2]),
    "string": pa.array(["a", "b"]),
    "binary": pa.array([b"a", b"b"]),
    "double": pa.array([0.5, 1.5]),
    "bool": pa.array([True, False]),
    "list": pa.array([[1, 4], [2, 3]]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "timestamp": pa.array([1, 2], pa.timestamp("us")),
    "nothing": pa.nulls(2, pa.string()),
}
_NAMES = [*_MDS, *(f"line {name}" for name in _LINES), *(f"arrow {name}" for name in _ARROW)]
_FEW = ["int", "str", "ndarray:int16:2", "arrow binary", "arrow bool", "arrow timestamp"]
_OF_NUMBERS = {"int", "uint8", "float32", "str_int", "line int", "line float"} | {
    "arrow int64",
    "arrow double",
}
_OF_TEXT = {"str", "bytes", "line str", "arrow string", "arrow binary"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return where a column of each type lies."""
    root = tmp_path_factory.mktemp("types")
    found: dict[str, dict[str, Any]] = {}
    for at, (name, values) in enumerate(_MDS.items()):
        with MDSWriter(out=root / f"{at}", columns={"x": name}) as writer:
            for value in values:
                writer.write({"x": value})
        found[name] = {"local": root / f"{at}"}
    for name, values in _LINES.items():
        with JSONWriter(out=root / name, columns={"x": name}) as lines:
            for value in values:
                lines.write({"x": value})
        found[f"line {name}"] = {"local": root / name}
    for name, array in _ARROW.items():
        folder = root / f"arrow {name}"
        folder.mkdir()
        pq.write_table(pa.table({"x": array}), folder / "rows.parquet")
        found[f"arrow {name}"] = {"remote": folder, "local": root / f"{name} kept"} | {
            "format": "parquet"
        }
    return found


def _mixed(places: dict[str, dict[str, Any]], names: list[str]) -> StreamingDataset:
    streams = [Stream(**places[name]) for name in dict.fromkeys(names)]
    return StreamingDataset(
        streams=streams, batch_size=2 * len(streams), num_canonical_nodes=1, allow_unsafe_types=True
    )


def _error(dataset: StreamingDataset, batch_format: Any) -> SchemaError | None:
    """Return what is wrong with the first batch, which has samples of all streams."""
    try:
        next(dataset.batches(batch_format=batch_format))
    except SchemaError as error:
        return error
    return None


@pytest.mark.parametrize("batch_format", ["torch", "arrow", "numpy", "dict"])
@pytest.mark.parametrize("names", [_FEW, pytest.param(_NAMES, marks=pytest.mark.slow)])
def test_what_is_refused_could_not_be_in_a_batch(
    places: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    batch_format: str,
) -> None:
    """And numbers, and texts, of whatever types they are, are never refused: they go together."""
    engine = type(_mixed(places, names[:2])._streaming_engine)
    refuse = engine.refuse_mixed
    for pair in itertools.combinations(names, 2):
        dataset = _mixed(places, list(pair))
        refused = _error(dataset, batch_format)
        if set(pair) <= _OF_NUMBERS or set(pair) <= _OF_TEXT:
            assert refused is None, pair
        if refused is None or "Take batch_format='rows'" not in str(refused):
            continue
        with monkeypatch.context() as unchecked:
            unchecked.setattr(engine, "refuse_mixed", lambda *_: None)
            errors = [
                _error(_mixed(places, list(order)), batch_format) for order in (pair, pair[::-1])
            ]
        assert any(errors), pair
    assert engine.refuse_mixed is refuse


_APART = [("int", "str"), ("str", "ndarray"), ("bytes", "arrow list"), ("arrow timestamp", "int")]


@pytest.mark.parametrize("pair", _APART)
def test_the_error_names_the_column_and_both_types(
    places: dict[str, dict[str, Any]], pair: tuple[str, str]
) -> None:
    """And the streams, and what may be done; loaders say it when they are made."""
    dataset = _mixed(places, list(pair))
    batch_format: Any
    for batch_format in ("torch",) if "arrow" in " ".join(pair) else ("torch", "arrow"):
        with pytest.raises(SchemaError, match=r"column 'x' is .* in stream 1 .*, and .*stream 0"):
            dataset.batches(batch_format=batch_format)
        with pytest.raises(SchemaError, match=r"Take batch_format='rows'"):
            StreamingDataLoader(dataset, dataset.batch_size, batch_format=batch_format)


@pytest.mark.parametrize("pair", _APART)
def test_columns_that_differ_are_mixed_where_that_can_be(
    places: dict[str, dict[str, Any]], pair: tuple[str, str]
) -> None:
    """As samples, as rows, by a function that collates them, in formats of any values."""
    dataset = _mixed(places, list(pair))
    assert len(list(dataset)) == 4
    for batch_format in ("rows", "numpy", "dict"):
        (batch,) = dataset.batches(batch_format=batch_format)
        assert len(batch) == (4 if batch_format == "rows" else 1)
    assert len(list(StreamingDataLoader(dataset, 4, collate_fn=list))) == 1
    streams = [Stream(**places[name]) for name in pair]
    singly = StreamingDataset(streams=streams, batch_size=1)
    assert len(list(StreamingDataLoader(singly, 1, batch_format="arrow"))) == 4
    alone = StreamingDataset(streams=streams, batch_size=2, batching_method="per_stream")
    assert len(list(StreamingDataLoader(alone, 2))) == 2


def test_parts_whose_columns_cannot_be_in_one_batch_are_not_joined(tmp_path: Path) -> None:
    """Before anything is written; numbers of other types are."""
    for name, encoding, value in (("a", "int", 1), ("b", "float32", 2.5), ("c", "str", "x")):
        with MDSWriter(out=tmp_path / name, columns={"id": encoding}) as writer:
            writer.write({"id": value})
    said = r"column 'id' is 'str' in c, and 'int' in a; convert them"
    with pytest.raises(SchemaError, match=said):
        merge_index(tmp_path)
    assert not (tmp_path / "index.json").exists()
    merge_index([tmp_path / "a", tmp_path / "b"], tmp_path)
    (batch,) = StreamingDataset(local=tmp_path, batch_size=2).batches()
    assert [*batch["id"]] == [1, 2.5]
