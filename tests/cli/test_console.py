"""The console entry as users start it: exit codes, streams, and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import streaming_core

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

ENTRY = "from streaming_core.cli import main; main()"


def run(
    *arguments: object, before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run what the console script runs, in a process of its own."""
    command = [sys.executable, "-c", before + ENTRY, *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, **environment},
    )


def test_the_version_is_printed() -> None:
    """`--version` names program and version, and exits with 0."""
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"streaming-core {streaming_core.__version__}\n"


def test_the_module_can_be_run(golden: Path) -> None:
    """`python -m streaming_core.cli` is the same program."""
    command = [sys.executable, "-m", "streaming_core.cli", "inspect", str(golden / "csv"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["data"]["num_samples"] == 41


def test_json_is_one_document_and_nothing_else(golden: Path) -> None:
    """A script can parse the whole of standard output."""
    done = run("verify", golden / "mds_zstd", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["url"] == (golden / "mds_zstd").as_uri()


@pytest.mark.essential
def test_a_missing_place_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """The error says what is missing and its kind, on standard error, without a traceback."""
    done = run("inspect", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error [index-missing]: ")
    assert "nowhere does not exist" in done.stderr
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """With `--debug` the same error comes with where it was raised, and the same exit code."""
    done = run("--debug", "inspect", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "IndexMissingError" in done.stderr


def test_wrong_usage_is_exit_code_2() -> None:
    """An unknown command is told from broken data by its exit code."""
    done = run("nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command" in done.stderr
    assert "Traceback" not in done.stderr


def test_broken_data_is_exit_code_1(written: Path) -> None:
    """`verify` of damaged data exits with 1."""
    (written / "shard.00001.mds").unlink()
    done = run("verify", written)
    assert done.returncode == 1
    assert "shard.00001.mds" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    """A base installation answers with the pip command and exit code 2, not with a traceback."""
    done = run("--version", before=f"import sys; sys.modules['{missing}'] = None; ")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'streaming-core[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_importing_the_command_line_needs_no_extra() -> None:
    """The room can be imported, and its `main` found, without typer and rich."""
    code = "import sys, streaming_core.cli; print({'typer', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_text_that_the_terminal_cannot_show_does_not_end_the_program(golden: Path) -> None:
    """With an ASCII-only terminal the values are escaped instead."""
    done = run("head", golden / "csv", "-n", "1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "row 0 \\xe9" in done.stdout


def test_an_unexpected_error_is_one_line_too(golden: Path) -> None:
    """Even a defect of ours shows no traceback unless asked for."""
    before = (
        "import streaming_core.cli._app as a\n"
        "def broken(*args, **kwargs):\n    raise ZeroDivisionError('a defect')\n"
        "a.inspect_place = broken\n"
    )
    done = run("inspect", golden / "csv", before=before)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error [ZeroDivisionError]: a defect (streaming-core --debug … shows where)\n"
    )
