"""Who may write in a folder, and what writers that died have left there."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.faults.signals import interrupts

from streaming_core._store import LocalStore, release_all
from streaming_core._store._lock import is_locked_here
from streaming_core._store._temp import is_temp, owner_is_gone, temp_name
from streaming_core.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    OutputBusyError,
    StoreError,
    WriterStateError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLD = """
import sys
from streaming_core._store import LocalStore
with LocalStore(sys.argv[1]).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""
_HOLD_AND_FORK = """
import os, sys
from streaming_core._store import LocalStore
with LocalStore(sys.argv[1]).lock():
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # by itself: until it runs it holds what it inherited
        sys.stdin.read()  # outlives its parent
        os._exit(0)
    sys.stdin.read()
"""
_DIE_IN_PUT = """
import os, signal, sys
from streaming_core._store import LocalStore
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
LocalStore(sys.argv[1]).put(sys.argv[2], [b"body"])
"""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def _holder(script: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `script` until it has printed a line; yield the process and the line."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def _die_in_put(folder: Path, key: str) -> str:
    """Let a process be killed in the middle of a put; return the name of what it left."""
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _DIE_IN_PUT, str(folder), key], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = [path.name for path in (folder / key).parent.iterdir() if is_temp(path.name)]
    return left


# --- lock -----------------------------------------------------------------------------------------


def test_the_lock_makes_the_folder_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    """Locking writes no file, neither while it is held nor after."""
    store = LocalStore(tmp_path / "new")
    with store.lock():
        assert _names(store.path) == []
        assert is_locked_here(str(store.path))
    assert _names(store.path) == []
    assert not is_locked_here(str(store.path))


@pytest.mark.kill
@pytest.mark.process
@pytest.mark.essential
def test_a_second_process_is_refused_at_once(tmp_path: Path) -> None:
    """The error is `OutputBusyError`, names the folder and says what to do."""
    with _holder(_HOLD, tmp_path) as (_, line):
        assert line == "locked"
        with (
            pytest.raises(OutputBusyError, match=re.escape(str(tmp_path)) + ".*another writer"),
            LocalStore(tmp_path).lock(),
        ):
            pytest.fail("two hold the lock")


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    """Also through another spelling of the folder, and it can be had again after release."""
    (tmp_path / "alias").symlink_to(tmp_path)
    with LocalStore(tmp_path).lock():
        for spelling in (tmp_path, tmp_path / "alias"):
            with pytest.raises(OutputBusyError):
                LocalStore(spelling).lock().acquire()
    with LocalStore(tmp_path / "alias").lock():
        pass


def test_other_folders_can_be_locked_meanwhile(tmp_path: Path) -> None:
    """The lock is one folder's, not that of what lies below or beside it."""
    store = LocalStore(tmp_path)
    with store.lock(), store.child("a").lock(), store.child("b").lock():
        assert is_locked_here(str(tmp_path / "a"))


def test_a_refused_lock_does_not_release_the_holders(tmp_path: Path) -> None:
    """Releasing what was never acquired, or twice, has no effect."""
    first, second = LocalStore(tmp_path).lock(), LocalStore(tmp_path).lock()
    first.acquire()
    with pytest.raises(OutputBusyError):
        second.acquire()
    second.release()
    assert is_locked_here(str(tmp_path))
    first.release()
    first.release()
    assert not is_locked_here(str(tmp_path))


@pytest.mark.kill
@pytest.mark.essential
def test_the_lock_dies_with_a_killed_process(tmp_path: Path) -> None:
    """After SIGKILL nothing needs to be cleaned."""
    with _holder(_HOLD, tmp_path) as (process, line):
        assert line == "locked"
        process.kill()
        process.wait(60)
        with LocalStore(tmp_path).lock():
            assert _names(tmp_path) == []


@pytest.mark.kill
def test_the_lock_dies_with_its_owner_although_a_forked_child_lives_on(tmp_path: Path) -> None:
    """A child that inherited every descriptor does not keep the lock."""
    with _holder(_HOLD_AND_FORK, tmp_path) as (process, line):
        process.kill()
        process.wait(60)
        os.kill(int(line), 0)  # raises if the child were gone
        with LocalStore(tmp_path).lock():
            pass


@pytest.mark.process
def test_a_forked_child_does_not_hold_the_lock_and_cannot_release_it(tmp_path: Path) -> None:
    """In the child, release has no effect and a new lock is refused: the parent holds it."""
    lock = LocalStore(tmp_path).lock()
    lock.acquire()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            lock.release()
            held = is_locked_here(str(tmp_path))
            try:
                LocalStore(tmp_path).lock().acquire()
            except OutputBusyError:
                status = 2 if held else 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(OutputBusyError):
        LocalStore(tmp_path).lock().acquire()
    lock.release()


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL])
def test_a_file_stands_in_where_folders_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Then `.lock` holds the lock, is no object, keeps others out, and goes at release."""
    real = fcntl.flock

    def refuse_folders(handle: int, operation: int) -> None:
        if os.path.samestat(os.fstat(handle), tmp_path.stat()):
            raise OSError(code, os.strerror(code))
        real(handle, operation)

    monkeypatch.setattr(fcntl, "flock", refuse_folders)
    store = LocalStore(tmp_path)
    for _ in range(2):
        with store.lock():
            assert _names(tmp_path) == [".lock"]
            assert (list(store.list()), store.empty()) == ([], True)
            with pytest.raises(OutputBusyError):
                store.lock().acquire()
            with (tmp_path / ".lock").open() as file, pytest.raises(BlockingIOError):
                real(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert _names(tmp_path) == []


@pytest.mark.process
def test_the_stand_in_refuses_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `.lock` file that another process has locked means busy."""
    real = fcntl.flock

    def refuse_folders(handle: int, operation: int) -> None:
        if os.path.samestat(os.fstat(handle), tmp_path.stat()):
            raise OSError(errno.ENOTSUP, "no")
        real(handle, operation)

    monkeypatch.setattr(fcntl, "flock", refuse_folders)
    # A second open file is to flock() what another process is.
    with (tmp_path / ".lock").open("w") as other:
        real(other.fileno(), fcntl.LOCK_EX)
        with pytest.raises(OutputBusyError, match=re.escape(str(tmp_path))):
            LocalStore(tmp_path).lock().acquire()
    with LocalStore(tmp_path).lock():
        pass


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    """The lock's own failures are typed, too."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="ENOTDIR"):
        LocalStore(tmp_path / "file" / "below").lock()


def test_a_lock_refused_for_another_reason_is_not_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a held lock is `OutputBusyError`; the system's other answers keep their meaning."""

    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(AccessDeniedError):
        LocalStore(tmp_path).lock().acquire()
    assert not is_locked_here(str(tmp_path))


# --- sweep ----------------------------------------------------------------------------------------


@pytest.mark.kill
@pytest.mark.essential
def test_a_killed_put_publishes_nothing_and_is_swept(tmp_path: Path) -> None:
    """What a SIGKILL in the middle of a put leaves is invisible, and one sweep removes it."""
    store = LocalStore(tmp_path)
    left = _die_in_put(tmp_path, "shard.00000.mds")
    assert left.startswith(".shard.00000.mds.")
    assert (list(store.list()), store.empty()) == ([], True)
    with pytest.raises(ObjectNotFoundError):
        store.get("shard.00000.mds")
    assert store.sweep() == 1
    assert _names(tmp_path) == []


@pytest.mark.kill
def test_sweep_removes_only_what_dead_processes_left(tmp_path: Path) -> None:
    """Files of living processes, of other machines, and files that only look alike stay."""
    dead = _die_in_put(tmp_path, "dead")
    alive = temp_name("alive")
    elsewhere = re.sub(r"-[0-9a-f]{8}", "-00000000", dead)
    others = ["notes.tmp", ".notes.tmp", ".a.123.tmp", ".a.123-xyz.tmp", "a"]
    for name in (alive, elsewhere, *others):
        (tmp_path / name).write_bytes(b"")
    assert (owner_is_gone(dead), owner_is_gone(alive), owner_is_gone(elsewhere)) == (
        True,
        False,
        False,
    )
    assert LocalStore(tmp_path).sweep() == 1
    assert _names(tmp_path) == sorted([alive, elsewhere, *others])


def test_sweeping_all_needs_the_lock(tmp_path: Path) -> None:
    """Whoever holds the lock may remove every temporary file; nobody else may."""
    store = LocalStore(tmp_path)
    names = [temp_name("a"), temp_name("b"), "a"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(WriterStateError, match="lock"):
        store.sweep(all=True)
    assert len(_names(tmp_path)) == 3
    with store.lock():
        assert store.sweep(all=True) == 2
    assert _names(tmp_path) == ["a"]


@pytest.mark.kill
def test_sweep_goes_deeper_only_when_asked(tmp_path: Path) -> None:
    """Folders below have writers of their own, and linked ones are never entered."""
    store = LocalStore(tmp_path / "store")
    _die_in_put(store.path, "deep/down/a")
    outside = tmp_path / "outside"
    _die_in_put(outside, "a")
    (store.path / "link").symlink_to(outside)
    assert store.sweep() == 0
    assert store.sweep(recursive=True) == 1
    assert _names(store.path / "deep" / "down") == []
    assert len(_names(outside)) == 1


def test_sweeping_a_folder_that_does_not_exist_is_fine(tmp_path: Path) -> None:
    """There is nothing to remove, and the folder is not made."""
    store = LocalStore(tmp_path / "absent")
    assert store.sweep(recursive=True) == 0
    assert not store.exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_no_lock_stays_behind_when_a_signal_handler_raises(tmp_path: Path) -> None:
    """At any moment that Python allows, even if the traceback is kept, as notebooks do."""
    store = LocalStore(tmp_path)

    def take() -> None:
        locks = [store.lock()]
        try:
            locks[0].acquire()
        finally:
            try:
                release_all(locks)
            finally:
                release_all(locks)

    count = 0
    for error in interrupts(take):
        assert not is_locked_here(str(tmp_path)), error
        with store.lock():
            pass
        count += 1
    assert count > 20


def test_a_lock_goes_with_its_owner(tmp_path: Path) -> None:
    """One that is forgotten blocks nobody."""
    lock = LocalStore(tmp_path).lock()
    lock.acquire()
    del lock
    with LocalStore(tmp_path).lock():
        pass
