"""`merge`: parts into one data set, without losing any unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streaming_core import MDSWriter, load_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder of three parts."""
    for part in range(3):
        with MDSWriter(out=tmp_path, columns={"a": "int"}, part=part) as out:
            for _ in range(part + 1):
                out.write({"a": part})
    return tmp_path


def test_all_parts_are_joined(cli: Run, root: Path) -> None:
    """Parts, shards and samples are counted, and the index is there."""
    result = cli("merge", root, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "url": root.as_uri(),
        "num_parts": 3,
        "num_shards": 3,
        "num_samples": 6,
    }
    assert load_index(root).num_samples == 6
    assert cli("verify", root).exit_code == 0


@pytest.mark.parametrize("form", ["{part}", "{root}/{part}", "{part}/", "{part}/index.json"])
def test_named_parts_are_joined_in_their_order(cli: Run, root: Path, form: str) -> None:
    """Parts may be named as below the root, or as the shell completes them."""
    parts = [form.format(root=root, part=f"part-0000{number}") for number in (2, 0)]
    result = cli("merge", root, *parts, "--json")
    assert result.exit_code == 0
    assert list(load_index(root).samples) == [3, 1]


def test_merging_again_takes_new_parts_in(cli: Run, root: Path) -> None:
    """An index that only names parts is replaced."""
    assert cli("merge", root, "part-00000").exit_code == 0
    assert cli("merge", root).exit_code == 0
    assert load_index(root).num_samples == 6


def test_people_read_the_counts(cli: Run, root: Path) -> None:
    """The text has the number of parts and samples."""
    lines = [line.split() for line in cli("merge", root).stdout.splitlines()]
    assert ["parts", "3"] in lines
    assert ["samples", "6"] in lines


def test_an_unfinished_part_is_not_left_out_silently(
    cli: Run, root: Path, break_off: Callable[..., int]
) -> None:
    """Joining all refuses while a part is being written; naming the others is the way on."""
    break_off(root / "part-00003")
    result = cli("merge", root)
    assert result.exit_code == 2
    assert "part-00003" in result.stderr
    assert not (root / "index.json").exists()
    assert cli("merge", root, "part-00000", "part-00001").exit_code == 0


def test_a_data_set_of_its_own_is_not_overwritten(cli: Run, root: Path, tmp_path: Path) -> None:
    """Where the root has shards itself, its index would be lost; so it is refused."""
    with MDSWriter(out=tmp_path / "own", columns={"a": "int"}) as out:
        out.write({"a": 1})
    for file in (tmp_path / "own").iterdir():
        if file.is_file():
            file.rename(root / file.name)
    (tmp_path / "own").rmdir()
    before = (root / "index.json").read_bytes()
    result = cli("merge", root)
    assert result.exit_code == 2
    assert "error [output-not-empty]" in result.stderr
    assert (root / "index.json").read_bytes() == before


def test_a_missing_part_is_an_error(cli: Run, root: Path) -> None:
    """A part that is not there is named, and no index is written."""
    result = cli("merge", root, "part-00000", "part-00009")
    assert result.exit_code == 2
    assert "part-00009" in result.stderr
    assert not (root / "index.json").exists()


def test_a_folder_without_parts_is_an_error(cli: Run, tmp_path: Path) -> None:
    """Nothing to join is told with exit code 2."""
    result = cli("merge", tmp_path)
    assert result.exit_code == 2
    assert "error [index-missing]" in result.stderr
