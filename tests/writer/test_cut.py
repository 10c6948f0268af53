"""Where shards are cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming_writer._cut import CutRule, plan_cuts


def _one_by_one(lengths: list[int], counted: int, rule: CutRule, *, ask_first: bool) -> list[int]:
    """State the rule as the format's page does, a record at a time."""
    cuts = []
    for i, length in enumerate(lengths):
        asked = i > 0 or ask_first
        if asked and rule.limit < counted + length + rule.record_bytes:
            cuts.append(i)
            counted = rule.base_bytes
        counted += length + rule.record_bytes
    return cuts


@given(
    lengths=st.lists(st.integers(0, 60), max_size=60),
    limit=st.integers(1, 150),
    base=st.integers(0, 40),
    record=st.sampled_from([0, 4]),
    used=st.integers(0, 120),
    ask_first=st.booleans(),
)
def test_blocks_are_cut_as_single_records_are(
    lengths: list[int], limit: int, base: int, record: int, used: int, ask_first: bool
) -> None:
    """The vectorised plan equals asking before every record."""
    rule = CutRule(limit, base, record)
    plan = plan_cuts(np.array(lengths, np.int64), base + used, rule, ask_first=ask_first)
    assert plan == _one_by_one(lengths, base + used, rule, ask_first=ask_first)


@given(
    length=st.integers(0, 60),
    count=st.integers(0, 60),
    limit=st.integers(1, 150),
    record=st.sampled_from([0, 4]),
    used=st.integers(0, 200),
    ask_first=st.booleans(),
)
def test_records_of_one_size_are_cut_by_division(
    length: int, count: int, limit: int, record: int, used: int, ask_first: bool
) -> None:
    """A length that stands for all records gives the cuts of that many equal ones."""
    rule = CutRule(limit, 10, record)
    lengths = np.broadcast_to(np.int64(length), (count,))
    plan = plan_cuts(lengths, 10 + used, rule, ask_first=ask_first)
    assert plan == _one_by_one([length] * count, 10 + used, rule, ask_first=ask_first)


@given(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=60), split=st.integers(0, 60))
def test_cuts_do_not_depend_on_how_records_are_grouped(lengths: list[int], split: int) -> None:
    """Two blocks give the cuts of one."""
    rule = CutRule(100, 10, 4)
    whole = plan_cuts(np.array(lengths, np.int64), 10, rule)
    split = min(split, len(lengths))
    first = plan_cuts(np.array(lengths[:split], np.int64), 10, rule)
    since = lengths[first[-1] : split] if first else lengths[:split]
    counted = 10 + sum(since) + 4 * len(since)
    second = plan_cuts(np.array(lengths[split:], np.int64), counted, rule)
    assert [*first, *(split + cut for cut in second)] == whole
