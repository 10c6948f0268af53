"""Documents packed into rows: every token once, in its document's order, whatever form it has."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streaming_core import create_dataloader, dataloader_from_config, pack
from streaming_core.errors import MissingColumnError, SchemaError
from streaming_reader._batch import Offsets

if TYPE_CHECKING:
    from pathlib import Path


def _documents(batch: dict[str, Any], length: int) -> list[list[int]]:
    """Return the parts of documents in a packed batch, having checked where they lie."""
    found: list[list[int]] = []
    ids, positions, segments = (
        np.asarray(batch[name]) for name in ("input_ids", "position_ids", "segment_ids")
    )
    assert ids.shape == positions.shape == segments.shape == (len(ids), length)
    for row, place, segment in zip(ids, positions, segments, strict=True):
        count = int(segment.max())
        assert count > 0  # no row without a document
        assert np.all(np.diff(segment[segment > 0]) >= 0)
        used = int((segment > 0).sum())
        assert (segment[:used] > 0).all()
        assert not row[used:].any()
        assert not place[used:].any()
        for number in range(1, count + 1):
            part = row[segment == number].tolist()
            assert part
            assert place[segment == number].tolist() == list(range(len(part)))
            found.append(part)
    return found


def _numbered(lengths: list[int]) -> list[np.ndarray[Any, Any]]:
    """Return documents of tokens that come once each, from 1 on."""
    bounds = np.cumsum([0, *lengths])
    return [np.arange(a, b) + 1 for a, b in itertools.pairwise(bounds)]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 17))
def test_every_token_comes_once_in_its_document(lengths: list[int], length: int) -> None:
    """Whole where it fits; longer ones in parts of a row's length and a rest."""
    documents = _numbered(lengths)
    found = _documents(pack(length)({"input_ids": documents}), length)
    wanted = [
        document[at : at + length].tolist()
        for document in documents
        for at in range(0, len(document), length)
    ]
    assert sorted(found) == sorted(wanted)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 17))
def test_cut_documents_fill_every_row_but_the_last(lengths: list[int], length: int) -> None:
    """And go on where they were cut."""
    documents = _numbered(lengths)
    batch = pack(length, cut=True)({"input_ids": documents})
    assert list(itertools.chain(*_documents(batch, length))) == list(range(1, sum(lengths) + 1))
    rows = np.asarray(batch["input_ids"])
    assert len(rows) == -(-sum(lengths) // length)
    assert (rows[:-1] > 0).all()


@given(st.lists(st.integers(1, 8), min_size=1, max_size=60))
def test_little_room_is_left(lengths: list[int]) -> None:
    """No two rows would fit into one, so that less than half of all is empty."""
    rows = np.asarray(pack(8)({"input_ids": _numbered(lengths)})["input_ids"])
    used = np.sort((rows > 0).sum(axis=1))
    assert len(rows) < 2 or used[0] + used[1] > 8


@pytest.mark.parametrize(
    ("batch_format", "ragged", "workers"),
    [
        *(("numpy", form, 0) for form in ("list", "padded", "offsets")),
        *(("jax", form, 0) for form in ("list", "padded", "offsets")),
        *(("torch", form, 0) for form in ("padded", "offsets")),
        pytest.param("torch", "offsets", 2, marks=pytest.mark.process),
        pytest.param("numpy", "padded", 2, marks=pytest.mark.process),
    ],
)
def test_stored_tokens_are_packed_whatever_form_they_have(
    tmp_path: Path, batch_format: Any, ragged: Any, workers: int
) -> None:
    """All formats give the same rows, torch's as tensors; training is resumed as ever."""
    tokens = [list(range(100 * i + 1, 100 * i + 2 + i % 9)) for i in range(90)]
    table = {"input_ids": pa.array(tokens, pa.list_(pa.int32())), "id": list(range(90))}
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=20)

    def made(**options: Any) -> Any:
        return create_dataloader(
            tmp_path / "a.parquet",
            batch_size=16,
            columns=["input_ids"],
            shuffle=True,
            batch_transform=pack(10),
            **options,
        )[0]

    wanted = [_documents(batch, 10) for batch in made(batch_format="numpy")]
    assert sorted(itertools.chain(*wanted)) == sorted(tokens)
    loader = made(batch_format=batch_format, ragged=ragged, num_workers=workers)
    found: list[Any] = []
    for batch in loader:
        assert all(isinstance(v, torch.Tensor) is (batch_format == "torch") for v in batch.values())
        assert np.asarray(batch["input_ids"]).dtype == np.int32
        found.append(_documents(batch, 10))
        if len(found) == 3:
            break
    resumed = made(batch_format=batch_format, ragged=ragged, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    assert found + [_documents(batch, 10) for batch in resumed] == wanted


def test_columns_are_packed_alike_and_labels_are_filled_with_what_is_not_trained() -> None:
    """Columns of one length, and matrices, too; others are left out."""
    batch = {
        "input_ids": torch.arange(6).reshape(2, 3),
        "labels": [torch.tensor([7, 8, 9]), torch.tensor([1, 2, 3])],
        "id": [1, 2],
    }
    found = pack(4, ["input_ids", "labels"])(batch)
    assert found.keys() == {"input_ids", "labels", "position_ids", "segment_ids"}
    assert found["labels"].tolist() == [[7, 8, 9, -100], [1, 2, 3, -100]]
    assert found["input_ids"].tolist() == [[0, 1, 2, 0], [3, 4, 5, 0]]


def test_offsets_may_begin_anywhere() -> None:
    """As those of a part of a larger array do."""
    values = np.arange(10)
    batch = {"a": Offsets(values, np.array([4, 6, 7])), "b": [values[:2], values[:1]]}
    found = pack(4, ["a", "b"])(batch)
    assert (found["a"].tolist(), found["b"].tolist()) == ([[4, 5, 6, 0]], [[0, 1, 0, 0]])


def test_what_filters_leave_nothing_of_stays_nothing() -> None:
    """A loop leaves such batches out; documents without tokens take no row."""
    assert pack(3)({}) == {}
    assert pack(3)({"input_ids": np.zeros((4, 0), np.int32)})["input_ids"].shape == (0, 3)
    assert pickle.loads(pickle.dumps(pack(3))) == pack(3)


def test_what_cannot_be_packed_is_said() -> None:
    """With the column, and what it has."""
    for length in (0, -1, True, "8"):
        with pytest.raises(SchemaError, match="length: expected"):
            pack(length)  # type: ignore[arg-type]
    for columns in ("input_ids", [], [3]):
        with pytest.raises(SchemaError, match="columns: expected"):
            pack(8, columns)  # type: ignore[arg-type]
    with pytest.raises(MissingColumnError, match="no column 'input_ids'; the batch has 'x'"):
        pack(8)({"x": [1]})
    with pytest.raises(SchemaError, match="'input_ids' must hold lists of numbers"):
        pack(8)({"input_ids": ["a", "b"]})
    with pytest.raises(SchemaError, match=r"dicts of columns.*came Table"):
        pack(8)(pa.table({"input_ids": [[1]]}))
    with pytest.raises(SchemaError, match="'b' has other numbers of values than 'a'"):
        pack(8, ["a", "b"])({"a": [np.arange(3)], "b": [np.arange(2)]})


def test_a_config_names_it(tmp_path: Path) -> None:
    """With its settings, which are checked."""
    pq.write_table(pa.table({"input_ids": [[1, 2], [3], [4, 5]]}), tmp_path / "a.parquet")
    config: dict[str, Any] = {
        "path": str(tmp_path / "a.parquet"),
        "batch_size": 3,
        "ragged": "offsets",
        "batch_transform": {"pack": {"length": 3, "cut": True}},
    }
    (batch,) = dataloader_from_config(config)[0]
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 5, 0]]
    for options, said in (
        ({}, "pack needs length"),
        ({"length": "3"}, "length: expected a whole number"),
        ({"length": 3, "cuts": True}, "did you mean 'cut'"),
        ({"length": 3, "columns": "x"}, "columns: expected a list"),
    ):
        with pytest.raises(SchemaError, match=said):
            dataloader_from_config({**config, "batch_transform": {"pack": options}})
