"""Packed texts behave as a sequence of texts."""

from __future__ import annotations

import pickle
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._index import PackedStrings

texts = st.lists(st.text(max_size=5), max_size=8)


@given(texts)
def test_it_holds_what_it_was_given(values: list[str]) -> None:
    """Length, items from both ends, iteration and membership are those of the list."""
    packed = PackedStrings.from_iterable(values)
    assert len(packed) == len(values)
    assert list(packed) == values
    assert [packed[i] for i in range(len(values))] == values
    assert [packed[-1 - i] for i in range(len(values))] == values[::-1]
    assert packed.max_text_bytes == max((len(value.encode()) for value in values), default=0)


@given(texts, st.slices(8))
def test_slices_are_those_of_a_list(values: list[str], part: slice) -> None:
    """Any slice, backwards ones too, gives the same texts."""
    assert list(PackedStrings.from_iterable(values)[part]) == values[part]


@given(st.lists(texts, max_size=4))
def test_concatenation_joins_in_order(parts: list[list[str]]) -> None:
    """Parts, empty ones included, follow each other."""
    joined = PackedStrings.concatenate([PackedStrings.from_iterable(part) for part in parts])
    assert joined == PackedStrings.from_iterable(chain.from_iterable(parts))


@given(texts, st.text(max_size=3))
def test_a_prefix_stands_before_each_text(values: list[str], prefix: str) -> None:
    """Every text gets the prefix, empty texts too."""
    packed = PackedStrings.from_iterable(values).with_prefix(prefix)
    assert packed == PackedStrings.from_iterable(prefix + value for value in values)


@given(texts)
def test_it_pickles(values: list[str]) -> None:
    """A copy from another process is equal."""
    packed = PackedStrings.from_iterable(values)
    assert pickle.loads(pickle.dumps(packed)) == packed


@pytest.mark.parametrize("index", [2, -3, 10**20])
def test_an_index_outside_is_an_error(index: int) -> None:
    """There is nothing before the first and after the last text."""
    with pytest.raises(IndexError, match="there are 2"):
        PackedStrings.from_iterable(["a", "b"])[index]


def test_a_slice_does_not_hold_the_whole() -> None:
    """A slice of a large column is as small as what it shows."""
    packed = PackedStrings.from_iterable(["x" * 100] * 1000)
    assert packed[:2].nbytes < 300


def test_equality_is_by_text() -> None:
    """Equal bytes that are parted otherwise are other texts, and a list is no packed text."""
    assert PackedStrings.from_iterable(["ab", "c"]) != PackedStrings.from_iterable(["a", "bc"])
    assert PackedStrings.empty(2) != PackedStrings.empty(3)
    assert PackedStrings.from_iterable(["a"]) != ["a"]
