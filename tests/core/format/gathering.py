"""Shards of drawn columns and values, and parts that pick samples from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from tests.core.format.mds.making import key, make_shard, opened
from tests.core.format.mds.values import VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._columns import Columns
    from streaming_core._format import Part, Shard
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
def picks(draw: st.DrawFn, shards: Sequence[Shard]) -> tuple[list[Part], list[tuple[int, int]]]:
    """Return parts, and which row of which shard belongs in each place."""
    wanted = draw(
        st.lists(
            st.integers(0, len(shards) - 1).flatmap(
                lambda i: st.tuples(st.just(i), st.integers(0, len(shards[i]) - 1))
            ),
            max_size=12,
        )
    )
    parts: list[Part] = []
    for i, shard in enumerate(shards):
        places = [place for place, (mine, _) in enumerate(wanted) if mine == i]
        rows = np.array([wanted[place][1] for place in places], np.int64)
        side_by_side = places == list(range(places[0], places[-1] + 1)) if places else True
        if side_by_side and draw(st.booleans()):
            start = places[0] if places else 0
            parts.append((shard, rows, slice(start, start + len(places))))
        else:
            parts.append((shard, rows, np.array(places, np.int64)))
    return draw(st.permutations(parts)), wanted


def assert_rows(columns: Columns, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Check that the columns hold these samples: every type, value and bit."""
    assert len(columns) == len(wanted)
    assert [key(dict(row)) for row in columns.rows()] == [key(dict(row)) for row in wanted]
