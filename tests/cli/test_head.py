"""`head`: samples for people and for programs."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]


def _lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_text_samples_are_those_that_were_written(cli: Run, golden: Path, name: str) -> None:
    """JSON lines give the values of the other writer's samples, in order."""
    wanted = json.loads((golden / name / "values.json").read_text())["samples"]
    assert _lines(cli("head", golden / name, "--json", "-n", 1000)) == wanted


@pytest.mark.parametrize(
    "name", ["mds_all", "mds_br", "mds_bz2", "mds_gz", "mds_hashed", "mds_snappy", "mds_zstd"]
)
def test_mds_samples_are_those_that_were_written(cli: Run, golden: Path, name: str) -> None:
    """In full, bytes and arrays can be had back from the JSON without loss."""
    wanted = json.loads((golden / name / "values.json").read_text())["samples"]
    found = _lines(cli("head", golden / name, "--json", "--full", "-n", 1000))
    assert len(found) == len(wanted) == 57
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine["i"] == theirs["i"]
        assert mine["s"] == theirs["s"]
        array = np.array(mine["nd"]["values"], mine["nd"]["dtype"])
        assert base64.b64encode(array.tobytes()).decode() == theirs["nd"]["ndarray"]
        assert mine["nd"]["shape"] == theirs["nd"]["shape"]
        assert mine["b"]["bytes"] == theirs["b"]["bytes"]


@pytest.mark.parametrize(
    ("count", "skip", "wanted"),
    [(2, 0, [0, 1]), (3, 28, [28, 29, 30]), (9, 39, [39, 40]), (0, 0, []), (5, 41, [])],
)
def test_count_and_skip_cross_shards(
    cli: Run, golden: Path, count: int, skip: int, wanted: list[int]
) -> None:
    """Any stretch of samples can be had, also over a shard's end and the data set's end."""
    found = _lines(cli("head", golden / "csv", "-n", count, "--skip", skip, "--json"))
    assert [sample["a"] for sample in found] == wanted


def test_people_see_each_sample_with_its_number(cli: Run, golden: Path) -> None:
    """The listing has number, shard and one line for each column."""
    result = cli("head", golden / "csv", "-n", 2, "--skip", 28)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "sample 28  shard 0"
    assert "sample 29  shard 1" in lines
    assert "s  'row 28 é'" in lines


def test_past_the_end_says_so(cli: Run, golden: Path) -> None:
    """Skipping everything is no error, and is told."""
    result = cli("head", golden / "csv", "--skip", 41)
    assert result.exit_code == 0
    assert "no samples from 41 on: the data set has 41" in result.stdout


def test_json_is_strict_whatever_the_values(cli: Run, tmp_path: Path) -> None:
    """Infinities, decimals, images and long values have a documented form, none is invalid JSON."""
    columns = {"f": "float64", "d": "str_decimal", "p": "pil", "a": "ndarray", "b": "bytes"}
    with MDSWriter(out=tmp_path / "data", columns=columns) as out:
        out.write(
            {
                "f": np.float64("-inf"),
                "d": Decimal("1.50"),
                "p": Image.new("RGB", (3, 2)),
                "a": np.arange(100, dtype=np.uint8),
                "b": b"x" * 100,
            }
        )
    (short,) = _lines(cli("head", tmp_path / "data", "--json"))
    assert short["f"] == {"float": "-inf"}
    assert short["d"] == {"decimal": "1.50"}
    assert short["p"] == {"image": "RGB", "size": [3, 2]}
    assert short["a"] == {"dtype": "uint8", "shape": [100], "values": list(range(64))}
    assert short["b"] == {"bytes": base64.b64encode(b"x" * 64).decode(), "length": 100}
    (full,) = _lines(cli("head", tmp_path / "data", "--json", "--full"))
    assert full["a"]["values"] == list(range(100))
    assert base64.b64decode(full["b"]["bytes"]) == b"x" * 100
    assert base64.b64decode(full["p"]["pixels"]) == bytes(18)


def test_long_values_are_shortened_for_people_unless_full(cli: Run, tmp_path: Path) -> None:
    """A page of text does not flood the terminal, and `--full` shows all of it."""
    with MDSWriter(out=tmp_path / "data", columns={"s": "str"}) as out:
        out.write({"s": "y" * 5000})
    assert cli("head", tmp_path / "data").stdout.count("y") < 300
    assert cli("head", tmp_path / "data", "--full").stdout.count("y") == 5000


def test_a_broken_shard_is_one_line(cli: Run, written: Path) -> None:
    """What cannot be read ends with its kind and exit code 2."""
    file = written / "shard.00000.mds"
    file.write_bytes(bytes(file.stat().st_size))
    result = cli("head", written)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error [shard-corrupt]: shard.00000.mds, byte 0: ")
    assert result.stderr.count("\n") == 1
