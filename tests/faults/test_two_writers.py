"""One folder has one writer; its death frees the folder, and a fork gives nobody a second one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pytest
from tests.faults.jobs import COLUMNS, JOBS, SAMPLES, Tree, tree

from streaming_core import MDSWriter
from streaming_core.errors import OutputBusyError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kill

_JOB = JOBS["rows"]


class _Holder:
    """A process that holds a writer and does what it is told."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.hold", str(root / "out")],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.opened = self.answer()

    def answer(self) -> str:
        return cast("IO[str]", self.process.stdout).readline().strip()

    def tell(self, line: str) -> str:
        stdin = cast("IO[str]", self.process.stdin)
        stdin.write(line + "\n")
        stdin.flush()
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def _holder(root: Path) -> Iterator[_Holder]:
    holder = _Holder(root)
    with holder.process:
        try:
            yield holder
        finally:
            holder.process.kill()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return what an undisturbed run leaves."""
    root = tmp_path_factory.mktemp("whole")
    _JOB.run(root)
    return tree(root)


def test_a_second_writer_is_refused_at_once_and_disturbs_nobody(
    tmp_path: Path, wanted: Tree
) -> None:
    """From this process and from another, however it would open; the first ends undisturbed."""
    with _holder(tmp_path) as first:
        assert first.opened == "opened 0"
        first.tell("write 50")
        modes: list[dict[str, Any]] = [{"resume": True}, {"exist_ok": True}, {"append": True}, {}]
        for mode in modes:
            start = time.monotonic()
            with pytest.raises(OutputBusyError, match="another writer"):
                MDSWriter(out=tmp_path / "out", columns=COLUMNS, **mode)
            assert time.monotonic() - start < 60
        with _holder(tmp_path) as second:
            assert second.opened == "OutputBusyError"
        first.tell("write 100")
        assert first.tell("finish") == "done"
    assert tree(tmp_path) == wanted


def test_after_the_death_of_the_first_the_second_goes_on_at_once(
    tmp_path: Path, wanted: Tree
) -> None:
    """Nothing needs to be cleaned or waited for, and nothing that was safe is lost."""
    with _holder(tmp_path) as first:
        first.tell("write 60")
        first.kill()
        with _holder(tmp_path) as second:
            safe = int(second.opened.removeprefix("opened "))
            assert safe <= 60
            second.tell("write 100")
            assert second.tell("finish") == "done"
    assert tree(tmp_path) == wanted


def test_a_child_that_lives_on_does_not_keep_the_folder(tmp_path: Path, wanted: Tree) -> None:
    """A forked process with copies of all descriptors outlives the writer without its lock."""
    with _holder(tmp_path) as first:
        first.tell("write 60")
        child = int(first.tell("linger"))
        try:
            first.kill()
            os.kill(child, 0)  # it is alive
            _JOB.run(tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)
    assert tree(tmp_path) == wanted


def test_a_forked_child_cannot_use_the_writer(tmp_path: Path, wanted: Tree) -> None:
    """It is told so at the first touch, does not hang, and the parent goes on undisturbed."""
    told = {
        "write": "WriterStateError",
        "write_batch": "WriterStateError",
        "finish": "WriterStateError",
        "leave": "WriterStateError",
        "leave by error": "KeyError",
        "cancel": "nothing",
    }
    with _holder(tmp_path) as parent:
        parent.tell("write 25")
        for what in [*told] * 3:
            assert parent.tell(f"fork {what}") == told[what], what
            parent.tell("write 2")
            with pytest.raises(OutputBusyError):
                MDSWriter(out=tmp_path / "out", columns=COLUMNS, resume=True)
        parent.tell("write 100")
        assert parent.tell("finish") == "done"
    assert tree(tmp_path) == wanted


def test_parts_are_written_side_by_side(tmp_path: Path, wanted: Tree) -> None:
    """Writers of parts, and a look at the folder above, do not take each other's files away."""
    with MDSWriter(
        out=tmp_path / "out", columns=COLUMNS, size_limit=400, part=3, checksums=True, max_workers=2
    ) as part:
        for number, sample in enumerate(SAMPLES):
            part.write(sample)
            if number % 10 == 9:
                with MDSWriter(out=tmp_path / "out", columns=COLUMNS, part=100 + number):
                    pass
                with pytest.raises(FileExistsError):
                    MDSWriter(out=tmp_path / "out", columns=COLUMNS)
    found = {name: data for name, data in tree(tmp_path).items() if "part-00003" in name}
    assert found == {name.replace("out", "out/part-00003"): data for name, data in wanted.items()}
