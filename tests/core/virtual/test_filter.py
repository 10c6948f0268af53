"""What users give as a filter: what it is told from, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_core._virtual._expression import Call, Field, Literal, packed_expression, tree_of
from streaming_core._virtual._filter import Filter
from streaming_core.errors import SchemaError

_TUPLES: list[Any] = [
    [("x", ">", 3)],
    [("x", "=", 3), ("y", "==", "a")],
    [["x", "!=", 3]],
    [[("x", "<", 3)], [("y", "in", ["a", "b"]), ("z", "<=", 1.5)]],
    [("d", ">=", date(2024, 5, 1)), ("p", "==", Decimal("1.20"))],
    [("y", "not in", ("a", None))],
    [("y", "in", [])],
    [("b", "==", b"\x00\xff")],
]


@pytest.mark.parametrize("given", _TUPLES, ids=repr)
def test_tuples_mean_what_they_mean_to_arrow(given: Any) -> None:
    """The same expression comes of them."""
    wanted = pq.filters_to_expression([tuple(each) if _is_one(each) else each for each in given])
    assert Filter.of(given).expression.equals(wanted)


def _is_one(each: Any) -> bool:
    return isinstance(each[0], str)


@pytest.mark.parametrize(
    "given",
    [
        "x > 3",
        ("x", ">", 3),
        [],
        [[]],
        [[("x", ">", 3)], []],
        [("x", ">")],
        [("x", ">", 3), [("y", "<", 1)]],
        [(3, ">", "x")],
        [("x", "like", "a%")],
        [("x", "in", "abc")],
        [("x", "in", 3)],
        [("x", "==", None)],
        [("x", "==", object())],
        3,
        lambda row: row["x"] > 3,
        pc.field(0) > 3,
    ],
)
def test_what_is_no_filter_is_refused(given: Any) -> None:
    """With a `TypeError` that says what there is."""
    with pytest.raises(SchemaError, match="filters") as caught:
        Filter.of(given)
    assert isinstance(caught.value, TypeError)


def test_it_says_which_columns_it_looks_at() -> None:
    """Each once, however deep, those within columns too."""
    x, y = pc.field("x"), pc.field("y", "inner")
    expression = ((x > 3) & ~(y == "a")) | pc.starts_with(pc.field("z"), "q") | (x.cast("int8") < 9)
    assert Filter.of(expression).columns == ("x", "y", "z")
    assert Filter.of(pc.scalar(True)).columns == ()


def test_long_lists_are_told_apart() -> None:
    """Also by a value that no message shows."""
    values = list(range(1000))
    one, same = Filter.of([("x", "in", values)]), Filter.of([("x", "in", list(values))])
    other = Filter.of([("x", "in", [*values[:500], -1, *values[501:]])])
    assert str(one.expression) == str(other.expression)
    assert one.identity == same.identity
    assert one.identity != other.identity
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_types_are_told_apart() -> None:
    """What is written alike may be compared otherwise."""
    identities = {
        Filter.of(pc.field("x") == pa.scalar(3).cast(kind)).identity
        for kind in (pa.int64(), pa.int8(), pa.float32(), pa.string())
    }
    assert len(identities) == 4


def test_it_pickles() -> None:
    """And is the same thing then."""
    for given in _TUPLES:
        before = Filter.of(given)
        after = pickle.loads(pickle.dumps(before))
        assert after == before
        assert (after.columns, after.identity) == (before.columns, before.identity)


_SCRIPT = """
from streaming_core._virtual._filter import Filter
print(Filter.of([("x", "in", {"one", "two", "three", "four"}), ("y", ">", 3)]).identity)
"""


@pytest.mark.process
def test_it_is_the_same_in_every_process() -> None:
    """Whatever order Python gives to a set there."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_the_tree_has_the_values_and_their_types() -> None:
    """Not their text."""
    expression = (pc.field("a", "b") >= pa.scalar(7, pa.uint8())) & pc.field("c").isin(["x", None])
    tree = tree_of(packed_expression(expression))
    assert isinstance(tree, Call)
    left, right = tree.arguments
    assert tree.name == "and_kleene"
    assert left == Call("greater_equal", (Field(("a", "b")), Literal(pa.scalar(7, pa.uint8()))))
    assert isinstance(right, Call)
    assert right.options["value_set"].as_py() == ["x", None]


@pytest.mark.parametrize("name", ["x' \ncall: 'y", "a.b", "", "ü\U0001f600", "end", '"', "(x > 3)"])
def test_names_of_columns_may_be_anything(name: str) -> None:
    """They are not taken from a text."""
    assert Filter.of([(name, ">", 3), ("z", "<", 1)]).columns == tuple(sorted((name, "z")))


def test_a_very_deep_expression_is_read_without_its_tree() -> None:
    """Rather than to overflow."""
    expression = pc.field("x") > 0
    for at in range(600):
        expression = expression | (pc.field("x") == at)
    found = Filter.of(expression)
    assert found.tree is None
    assert found.columns is None
