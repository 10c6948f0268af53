"""How many calls a sample takes, which is what writing single samples costs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import LocalDataset, MDSWriter

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

_NUMBERS = {f"n{i}": kind for i, kind in enumerate(("int", "float64", "uint8", "int32") * 3)}


def _calls(out: Path, columns: dict[str, str], sample: dict[str, Any]) -> int:
    """Return how many functions of Python's one of many writes calls."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    with MDSWriter(out=out, columns=columns) as writer:
        writer.write(sample)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            writer.write(sample)
        finally:
            sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    "others", [{"text": "str"}, {"a": "str", "o": "bytes", "z": "str"}, {"a": "float32"}]
)
def test_numbers_beside_other_columns_cost_no_calls(tmp_path: Path, others: dict[str, str]) -> None:
    """Those that lie side by side are packed by one call into C."""
    values: dict[str, Any] = {"str": "text", "bytes": b"bytes", "float32": 1.5}
    sample = {name: values[kind] for name, kind in others.items()}
    alone = _calls(tmp_path / "alone", others, sample)
    sample |= dict.fromkeys(_NUMBERS, 7) | {n: 1.5 for n, k in _NUMBERS.items() if k == "float64"}
    assert _calls(tmp_path / "both", others | _NUMBERS, sample) == alone
    found = LocalDataset(tmp_path / "both")
    assert found[0] == found[1] == sample


def test_values_that_need_their_encoding_are_written_beside_others(tmp_path: Path) -> None:
    """A whole float for an int, in any of several runs of numbers, shifts no other record."""
    columns = {"a": "int", "b": "str", "c": "int16", "d": "float64", "e": "bytes"}
    plain = {"a": 1, "b": "b", "c": 2, "d": 0.5, "e": b"e"}
    odd: list[dict[str, Any]] = [{}, {"a": 3.0}, {"c": 4.0}, {}, {"d": 5}, {"a": 6.0, "c": 7.0}, {}]
    with MDSWriter(out=tmp_path, columns=columns, size_limit=200) as writer:
        for change in odd:
            writer.write(plain | change)
    assert list(LocalDataset(tmp_path)) == [plain | change for change in odd]
