"""Broken records and values are found when they are gathered, and nothing else is read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.format.gathering import gather_pairs, gather_rows, shard_of
from tests.core.format.mds.making import key, make_shard, opened, promised
from tests.hostile.shards import RECORDS, VALUES

from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hostile.shards import Case

    from streaming_core._format import Shard


def outcome(call: Callable[[], Any]) -> Any:
    """Return what comes, or the error's text, in a form that compares every bit."""
    try:
        return key(call())
    except ShardCorruptError as error:
        return str(error)


def gathered(shard: Shard, rows: list[int]) -> list[dict[str, Any]]:
    """Return the rows by way of columns."""
    return gather_rows(shard, rows).rows()


@pytest.mark.parametrize("case", RECORDS + VALUES, ids=lambda case: case.name)
def test_a_broken_sample_gives_the_error_that_its_row_gives(case: Case) -> None:
    """Same class and same text: shard, byte, sample, column, what was wanted and what came."""
    shard = opened(case.info, case.raw, allow_unsafe=True)
    with pytest.raises(ShardCorruptError) as alone:
        shard.row(0)
    with pytest.raises(ShardCorruptError) as together:
        gathered(shard, [0])
    assert str(together.value) == str(alone.value)


COLUMNS = {"a": "str", "b": "ndarray:uint16", "c": "ndarray", "d": "int", "e": "bytes", "f": "json"}


def _sample(i: int) -> dict[str, Any]:
    numbers = np.arange(3 + i % 2)
    return {"a": "é" * i, "b": numbers.astype(np.uint16), "c": numbers, "d": i, "e": b"x", "f": [i]}


INFO, GOOD = make_shard(COLUMNS, [_sample(i) for i in range(4)])
START = int.from_bytes(GOOD[4:8], "little")


@given(
    st.lists(st.tuples(st.integers(START, len(GOOD) - 1), st.integers(0, 255)), max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
def test_flipped_bytes_give_what_the_rows_give(
    changes: list[tuple[int, int]], rows: list[int]
) -> None:
    """Whatever bytes a record has, columns and rows agree: equal values, or an error of one."""
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    shard = opened(INFO, bytes(data))
    alone = [outcome(lambda row=row: shard.row(row)) for row in rows]  # type: ignore[misc]
    together = outcome(lambda: gathered(shard, rows))
    if any(isinstance(each, str) for each in alone):
        assert together in alone
    else:
        assert together == ("list", alone)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_lengths_that_lie_never_lead_out_of_the_record(a: int, b: int, two: bool) -> None:
    """Lengths are checked before they are used, also beside a good shard."""
    columns = {"a": "bytes", "b": "ndarray"}
    info, raw = make_shard(columns, [{"a": b"abcd", "b": np.arange(2)}] * 2)
    start = int.from_bytes(raw[4:8], "little")
    bad = raw[:start] + struct.pack("<II", a, b) + raw[start + 8 :]
    shard = opened(promised(info, bad), bad)
    shards, pairs = [shard], [(0, 1), (0, 0)]
    if two:
        shards.append(opened(info, raw))
        pairs.append((1, 0))
    alone = outcome(lambda: shard.row(0))
    together = outcome(lambda: gather_pairs(shards, pairs).rows())
    assert together == alone if isinstance(alone, str) else not isinstance(together, str)


def test_text_is_checked_value_by_value() -> None:
    """Two values that are text together, but not each alone, are refused."""
    columns = {"x": "str"}
    info, raw = make_shard(columns, [{"x": "aa"}, {"x": "bb"}])
    bad = raw.replace(b"aa", b"a\xc3").replace(b"bb", b"\xa9b")
    shard = opened(info, bad)
    for rows in ([0, 1], [1], [0]):
        with pytest.raises(ShardCorruptError, match=r"sample .: column 'x': 'utf-8' codec"):
            gathered(shard, rows)


def test_only_what_is_wanted_is_decoded() -> None:
    """A broken value in a column that nobody asked for is no error."""
    info, raw = make_shard({"a": "json", "b": "str"}, [{"a": [1], "b": "x"}])
    shard = opened(info, raw.replace(b"[1]", b"[1}"))
    assert gather_rows(shard, names=["b"]).rows() == [{"b": "x"}]
    with pytest.raises(ShardCorruptError, match="sample 0: column 'a'"):
        gather_rows(shard, names=["a"])


@pytest.mark.parametrize("size", [70_000, 200_000])
def test_values_wider_than_a_type_can_be_are_gathered(size: int) -> None:
    """Arrays of many bytes come whole, from one shard and from two."""
    columns = {"x": f"ndarray:uint8:{size}", "y": "int"}
    samples = [{"x": np.full(size, i, np.uint8), "y": i} for i in range(3)]
    shards = [shard_of(columns, samples), shard_of(columns, samples[::-1])]
    pairs = [(i, row) for row in (2, 0, 1) for i in range(2)]
    wanted = [2, 0, 0, 2, 1, 1]
    found = gather_pairs(shards, pairs).rows()
    assert [row["y"] for row in found] == wanted
    assert [set(row["x"].tolist()) for row in found] == [{i} for i in wanted]
    assert [row["y"] for row in gathered(shards[0], [2, 0])] == [2, 0]
