"""What `index` says of how files are written."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core._virtual import VirtualIndex
from streaming_core._virtual._model import Scan, SourceFile, Unit
from streaming_core.cli._layout import Spread, layout_advice, spread_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]

MIB = 1 << 20


def _index(*files: list[tuple[int, int]], suffix: str = "", size: int = 9 * MIB) -> VirtualIndex:
    """Return an index of files, each given as (number of a part, bytes) of its units."""
    sources = [SourceFile(f"{at}.parquet{suffix}", size, "") for at in range(len(files))]
    scans = [
        Scan(pa.schema([]), tuple(Unit(7, nbytes, number) for number, nbytes in units))
        for units in files
    ]
    return VirtualIndex.of("parquet", {}, sources, scans)


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (_index(), []),
        (_index([(0, 300)]), []),
        (_index(*[[(at, 64 * MIB) for at in range(40)]] * 3), []),
        # One part of 5 x 60 MiB, though no unit has as much.
        (_index([(0, 60 * MIB)] * 5 + [(at, 40 * MIB) for at in range(1, 20)]), ["1 of 20 parts"]),
        # The same numbers of other files are other parts.
        (_index(*[[(0, 60 * MIB)] * 4] * 9), []),
        (_index(*[[(0, 9000)]] * 99, size=9000), []),
        (_index(*[[(0, 9000)]] * 100, size=9000), ["half of 100 files"]),
        (_index([(at, 100 * MIB) for at in range(15)]), ["in 15 unit(s)"]),
        (
            _index([(at, 100 * MIB) for at in range(16)], suffix=".gz"),
            ["1 file(s) that are compressed as a whole"],
        ),
        (_index(*[[(0, 100 * MIB)]] * 99, suffix=".gz"), []),
        (
            _index([(0, 300 * MIB)], suffix=".zst"),
            ["compressed as a whole", "the largest 300", "in 1 unit(s)"],
        ),
    ],
)
def test_what_would_better_be_written_otherwise_is_told(
    index: VirtualIndex, told: list[str]
) -> None:
    """With numbers and what to do; what is well is not mentioned."""
    found = layout_advice(index)
    assert len(found) == len(told)
    for text, part in zip(found, told, strict=True):
        assert part in text
        assert "16 to 128 MiB" in text


def test_a_spread_of_nothing_is_none() -> None:
    """As of a folder of empty files."""
    assert spread_of(np.zeros(0, np.int64)) == Spread(0, 0, 0)


def test_the_command_says_it_of_real_files(cli: Run, tmp_path: Path) -> None:
    """In its table and as JSON; units are described in both."""
    for at in range(110):
        pq.write_table(pa.table({"id": [at, at]}), tmp_path / f"{at}.parquet")
    report: Any = json.loads(cli("index", tmp_path, "--json").stdout)
    assert report["unit_rows"] == {"min": 2, "median": 2, "max": 2}
    assert 0 < report["unit_bytes"]["min"] <= report["unit_bytes"]["max"]
    (advice,) = report["advice"]
    assert "110 files" in advice
    shown = " ".join(cli("index", tmp_path, "--check").stdout.split())
    assert advice in shown
    assert "2 (at most 2) rows" in shown


@pytest.mark.slow
def test_a_large_compressed_text_is_told(cli: Run, tmp_path: Path) -> None:
    """As nobody can begin in its middle."""
    line = json.dumps({"text": "x" * 4000}) + "\n"
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", compresslevel=1) as file:
        for _ in range(70):
            file.write(line * 1000)
    result = cli("index", tmp_path, "--option", "max_ratio=2000", "--json")
    assert result.exit_code == 0, result.output
    assert "compressed as a whole" in json.loads(result.stdout)["advice"][0]
