"""What an earlier writer left, however oddly, is not taken for something else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.faults.forks import Inject, Server
from tests.faults.jobs import COLUMNS, JOBS, SAMPLES, Tree, tree

from streaming_core import MDSWriter
from streaming_core.errors import OutputNotEmptyError, WriterStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_JOB = JOBS["small"]
_OTHER = [{"id": -1, "text": "of another source"} for _ in SAMPLES]


class _StopError(Exception):
    """What a user's code may raise."""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return what an undisturbed run leaves."""
    root = tmp_path_factory.mktemp("whole")
    _JOB.run(root)
    return tree(root)


def _stopped(root: Path) -> None:
    """Leave an unfinished conversion of another source with the same settings."""
    with (  # noqa: PT012 - the last line raises
        pytest.raises(_StopError),
        MDSWriter(out=root / "out", columns=COLUMNS, size_limit=1500, max_workers=1) as writer,
    ):
        writer.write_batch({name: [sample[name] for sample in _OTHER] for name in COLUMNS})
        raise _StopError


@pytest.mark.kill
@pytest.mark.process
def test_a_deletion_that_was_killed_leaves_nothing_to_go_on_with(
    tmp_path: Path, wanted: Tree
) -> None:
    """exist_ok=True, killed at each removal: resume=True refuses, or keeps none of the old."""
    (tmp_path / "base").mkdir()
    _stopped(tmp_path / "base")
    kills = 0
    with Server(Inject("signal=KILL", ("unlink", "unlinkat", "fsync"))) as server:
        for call in ("unlink", "unlinkat", "fsync"):
            for nth in range(1, 8):
                root = tmp_path / f"{call}-{nth}"
                shutil.copytree(tmp_path / "base", root)
                outcome = server.run("small-anew", root, fail=(call, nth, "main"))
                assert outcome["code"] in {0, -9}, outcome["error"]
                kills += outcome["code"] != 0
                if tree(root).keys() >= tree(tmp_path / "base").keys():
                    continue  # nothing has been deleted yet
                try:
                    _JOB.run(root)
                except OutputNotEmptyError:
                    JOBS["small-anew"].run(root)
                assert tree(root) == wanted, f"killed at {call} {nth}"
    assert kills > 5


def test_notes_without_settings_count_for_nothing(tmp_path: Path, wanted: Tree) -> None:
    """Shards of nobody knows which conversion are not gone on with, and not deleted unasked."""
    _stopped(tmp_path)
    (tmp_path / "out/.writing/settings.json").unlink()
    before = tree(tmp_path)
    with pytest.raises(OutputNotEmptyError, match=r"shards.*neither an index nor"):
        _JOB.run(tmp_path)
    assert tree(tmp_path) == before
    for shard in (tmp_path / "out").glob("shard.*"):
        shard.unlink()
    assert _JOB.run(tmp_path) == 0
    assert tree(tmp_path) == wanted


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"{}", b'{"entry": 1, "sums": {}}', b"\xff"])
def test_a_note_that_cannot_be_read_is_no_note(tmp_path: Path, wanted: Tree, note: bytes) -> None:
    """The shard is written again; nothing stands in the way."""
    _JOB.run(tmp_path / "whole")
    with pytest.raises(_StopError):
        _JOB.run(tmp_path, _after(90))
    path = tmp_path / "out/.writing/00001.json"
    assert json.loads(path.read_bytes())
    path.write_bytes(note)
    assert _JOB.run(tmp_path) > 0
    shutil.rmtree(tmp_path / "whole")
    assert tree(tmp_path) == wanted


def _after(count: int) -> Callable[[], None]:
    left = count

    def tick() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise _StopError

    return tick


def test_an_error_beside_a_finished_conversion_frees_the_folder(tmp_path: Path) -> None:
    """resume=True finds all done, the block raises: the next writer is let in."""
    _JOB.run(tmp_path)
    for _ in range(2):
        with (
            pytest.raises(_StopError),
            MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limit=1500, resume=True),
        ):
            raise _StopError
    _JOB.run(tmp_path)


def test_a_refused_batch_does_not_undo_a_finish(tmp_path: Path) -> None:
    """Writing after the end is an error, and the end stays an end."""
    writer = MDSWriter(out=tmp_path / "out", columns=COLUMNS)
    writer.write(SAMPLES[1])
    writer.finish()
    with pytest.raises(WriterStateError):
        writer.write_batch({"id": [1], "text": ["x"]})
    writer.finish()
