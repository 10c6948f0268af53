"""Shards of drawn columns and values, and ways to pick samples from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from tests.core.format.mds.making import key, make_shard, opened
from tests.core.format.mds.values import VALUES

from streaming_core._format import gather

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._columns import Columns
    from streaming_core._format import Shard
    from streaming_core._format._mds import MDSShard

LIGHT = sorted(name for name in VALUES if not name.startswith(("p", "list")))
"""Encodings whose values are quickly drawn: all but images and pickles."""

LINES = st.lists(st.integers(0, 300), min_size=1, max_size=6)
TYPES = st.sampled_from(["uint8", "uint16", "int64", "float16"])


@st.composite
def flat(draw: st.DrawFn) -> list[np.ndarray[Any, Any]]:
    """Return arrays of one type and one dimension, their lengths on both sides of 256."""
    dtype = draw(TYPES)
    return [np.arange(length).astype(dtype) for length in draw(LINES)]


def shard_of(columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> MDSShard:
    """Return a shard of the samples."""
    info, raw = make_shard(columns, samples)
    return opened(info, raw, allow_unsafe=True)


@st.composite
def tables(
    draw: st.DrawFn, names: Sequence[str] = LIGHT
) -> tuple[dict[str, str], list[list[dict[str, Any]]]]:
    """Return columns, and the samples of one to three shards."""
    encodings = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
    columns = {f"c{i}": encoding for i, encoding in enumerate(encodings)}
    sample = st.fixed_dictionaries({name: VALUES[text] for name, text in columns.items()})
    return columns, draw(st.lists(st.lists(sample, min_size=1, max_size=5), min_size=1, max_size=3))


@st.composite
def picks(draw: st.DrawFn, shards: Sequence[Shard]) -> list[tuple[int, int]]:
    """Return some samples: shard and row of each."""
    return draw(
        st.lists(
            st.integers(0, len(shards) - 1).flatmap(
                lambda i: st.tuples(st.just(i), st.integers(0, len(shards[i]) - 1))
            ),
            max_size=12,
        )
    )


def gather_pairs(
    shards: Sequence[Shard], pairs: Sequence[tuple[int, int]], *args: Any, **kwargs: Any
) -> Columns:
    """Gather samples given as shard and row."""
    which, rows = np.array(pairs, np.int64).reshape(-1, 2).T
    return gather(shards, which, rows, *args, **kwargs)


def gather_rows(shard: Shard, rows: Sequence[int] | None = None, *args: Any, **kw: Any) -> Columns:
    """Gather rows of one shard, all by default."""
    wanted = np.array(range(len(shard)) if rows is None else rows, np.int64)
    return gather([shard], np.zeros(len(wanted), np.int64), wanted, *args, **kw)


def assert_rows(columns: Columns, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Check that the columns hold these samples: every type, value and bit."""
    assert len(columns) == len(wanted)
    assert [key(dict(row)) for row in columns.rows()] == [key(dict(row)) for row in wanted]
