"""Places that cannot be written to, or stop to be: a clear error, no index, and a way on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.forks import Server
from tests.faults.jobs import COLUMNS, JOBS, SAMPLES, check_consistent, tree

from streaming_core import MDSWriter
from streaming_core.errors import AccessDeniedError, OutputBusyError, StoreError

_JOB = JOBS["rows"]
Mount = Callable[[Path, str], None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Return a function that mounts a small file system in memory; skips where that is refused."""
    with ExitStack() as stack:

        def make(folder: Path, options: str) -> None:
            folder.mkdir(exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except FileNotFoundError:
                pytest.skip("there is no mount command")
            if done.returncode:
                pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
            stack.callback(subprocess.run, ["umount", str(folder)], check=True)

        yield make


def _remount(folder: Path, options: str) -> None:
    command = ["mount", "-o", f"remount,{options}", str(folder)]
    subprocess.run(command, check=True)


@pytest.mark.process
@pytest.mark.parametrize(
    ("small", "large"), [("size=32k", "size=1m"), ("nr_inodes=8", "nr_inodes=99")]
)
def test_a_full_disk_is_named_and_resume_goes_on_once_it_has_room(
    tmp_path: Path, mount: Mount, small: str, large: str
) -> None:
    """Neither bytes nor inodes left: ENOSPC with the folder, no index, then the whole."""
    _JOB.run(tmp_path / "whole")
    wanted = tree(tmp_path / "whole")
    mount(tmp_path / "disk", small)
    with pytest.raises(StoreError, match="No space left on device") as caught:
        _JOB.run(tmp_path / "disk")
    assert caught.value.errno == errno.ENOSPC
    assert str(tmp_path / "disk/out") in str(caught.value)
    assert not (tmp_path / "disk/out/index.json").exists()
    check_consistent(_JOB, tmp_path / "disk", {}, wanted)
    _remount(tmp_path / "disk", large)
    _JOB.run(tmp_path / "disk")  # how much was safe depends on which thread was first
    assert tree(tmp_path / "disk") == wanted


@pytest.mark.process
def test_a_script_on_a_full_disk_ends_with_an_error(tmp_path: Path, mount: Mount) -> None:
    """Whoever looks at nothing but the exit status learns of it."""
    mount(tmp_path / "disk", "size=16k")
    script = (
        "import sys; from pathlib import Path; from tests.faults.jobs import JOBS; "
        "JOBS['batches'].run(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "disk")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "StoreError" in done.stderr
    assert "ENOSPC" in done.stderr


@pytest.mark.process
def test_a_file_system_that_becomes_read_only_is_named(tmp_path: Path, mount: Mount) -> None:
    """The kernel does that after errors; going on after a repair gives the whole."""
    _JOB.run(tmp_path / "whole")
    mount(tmp_path / "disk", "size=1m")

    read_only = False

    def tick() -> None:
        nonlocal read_only
        if not read_only and (tmp_path / "disk/out/shard.00003.mds").exists():
            # Refused while a thread has a file open to write; then the next sample asks again.
            command = ["mount", "-o", "remount,ro", str(tmp_path / "disk")]
            read_only = subprocess.run(command, check=False, capture_output=True).returncode == 0

    with pytest.raises(AccessDeniedError, match="mounted read-only"):
        _JOB.run(tmp_path / "disk", tick)
    _remount(tmp_path / "disk", "rw")
    _JOB.run(tmp_path / "disk")  # how much was safe depends on which thread was first
    assert tree(tmp_path / "disk") == tree(tmp_path / "whole")


@pytest.mark.process
def test_a_parent_that_is_read_only_is_named(tmp_path: Path, mount: Mount) -> None:
    """The folder cannot even be made."""
    mount(tmp_path / "disk", "size=1m")
    _remount(tmp_path / "disk", "ro")
    with pytest.raises(AccessDeniedError, match="mounted read-only"):
        _JOB.run(tmp_path / "disk")


def test_missing_parents_are_made(tmp_path: Path) -> None:
    """As deep as the output lies."""
    _JOB.run(tmp_path / "a/b/c")
    _JOB.run(tmp_path / "whole")
    assert tree(tmp_path / "a/b/c") == tree(tmp_path / "whole")


@pytest.mark.parametrize("place", ["out", "out/part-00003"])
def test_a_file_in_the_place_of_a_folder_is_refused_and_kept(tmp_path: Path, place: str) -> None:
    """At the output, or above it."""
    job = JOBS["part"] if place != "out" else _JOB
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("mine")
    with pytest.raises(StoreError, match="A file stands where a folder is needed"):
        job.run(tmp_path)
    assert (tmp_path / place).read_text() == "mine"


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("allowed", ["nothing", "reading"])
def test_a_user_without_permission_is_told(tmp_path: Path, allowed: str) -> None:
    """The folder is somebody else's: to be made, or there and readable."""
    # Others may walk down to the folder itself, in which they may do nothing.
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(0o755)
    if allowed == "reading":
        (tmp_path / "out").mkdir(mode=0o755)
    with Server() as server:
        outcome = server.run(_JOB.name, tmp_path, patch="lone-user")
    assert outcome["code"] == 1
    assert "AccessDeniedError" in outcome["error"]["kinds"], outcome["error"]["trace"]
    assert str(tmp_path / "out") in outcome["error"]["text"]
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("at", [20, 60, len(SAMPLES)])
def test_an_output_that_is_removed_meanwhile_is_not_finished(tmp_path: Path, at: int) -> None:
    """Shards that are gone are missed: an error, no index, and a new run gives the whole."""
    _JOB.run(tmp_path / "whole")
    root = tmp_path / "root"
    with pytest.raises(StoreError, match="was removed"), _opened(root) as writer:  # noqa: PT012
        for number, sample in enumerate([*SAMPLES, None]):
            if number == at:
                # In one step, as the writer's threads go on meanwhile.
                shutil.rmtree((root / "out").rename(tmp_path / "aside"), ignore_errors=True)
            if sample is not None:
                writer.write(sample)
    assert not (root / "out/index.json").exists()
    _JOB.run(root)
    assert tree(root) == tree(tmp_path / "whole")


def _opened(root: Path) -> MDSWriter:
    return MDSWriter(out=root / "out", columns=COLUMNS, size_limit=400, max_workers=1)


def test_a_shard_that_is_removed_meanwhile_is_missed(tmp_path: Path) -> None:
    """An index would name a file that is not there."""
    with pytest.raises(StoreError, match=r"1 of \d+ files, 'shard.00000.mds' the first"):
        _JOB.run(tmp_path, lambda: (tmp_path / "out/shard.00000.mds").unlink(missing_ok=True))
    assert not (tmp_path / "out/index.json").exists()


@pytest.mark.process
def test_a_folder_that_others_write_to_after_its_removal_is_theirs(tmp_path: Path) -> None:
    """The writer whose folder was removed does not write into the new one of the same name."""
    first = _opened(tmp_path)
    first.write_batch({name: [sample[name] for sample in SAMPLES] for name in COLUMNS})
    (tmp_path / "out").rename(tmp_path / "aside")
    script = (
        "import sys; from pathlib import Path; from tests.faults.jobs import JOBS; "
        "JOBS['batches'].run(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    theirs = tree(tmp_path / "out")
    with pytest.raises((StoreError, OutputBusyError)):
        first.finish()
    assert tree(tmp_path / "out") == theirs
