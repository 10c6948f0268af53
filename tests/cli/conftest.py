"""What the tests of the command line share."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from streaming_core import MDSWriter
from streaming_core.cli._app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result


class StoppedError(Exception):
    """Ends a conversion before its end."""


@pytest.fixture
def cli() -> Callable[..., Result]:
    """Return a function that runs the command line with arguments, in this process."""

    def run(*arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a golden data set to where it may be damaged."""

    def copied(name: str) -> Path:
        target = tmp_path / name
        target.mkdir()
        for file in (golden / name).iterdir():
            if file.name != "values.json":
                shutil.copyfile(file, target / file.name)  # without its read-only mode
        return target

    return copied


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a data set of three shards with a file of sums, written by us."""
    folder = tmp_path / "written"
    with MDSWriter(
        out=folder, columns={"id": "int", "text": "str"}, size_limit=500, checksums=True
    ) as out:
        for number in range(30):
            out.write({"id": number, "text": f"sample {number}"})
    assert len(list(folder.glob("shard.*.mds"))) == 3
    return folder


@pytest.fixture
def break_off() -> Callable[..., int]:
    """Return a function that leaves an unfinished conversion, and counts its safe samples."""

    def broken_off(folder: Path, *, append: bool = False) -> int:
        columns = {"id": "int", "text": "str"}
        had_index = (folder / "index.json").exists()
        with (
            contextlib.suppress(StoppedError),
            MDSWriter(out=folder, columns=columns, size_limit=500, append=append) as out,
        ):
            for number in range(100):
                out.write({"id": number, "text": f"sample {number}"})
            raise StoppedError
        assert (folder / "index.json").exists() == had_index == append
        return out.num_safe_samples

    return broken_off
