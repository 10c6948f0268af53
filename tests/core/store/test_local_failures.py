"""The local store when the system says no: full, limited, read-only, or the file goes away."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_core._store import LocalStore
from streaming_core.errors import AccessDeniedError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PUT = """
import os, resource, sys
from streaming_core._store import LocalStore
from streaming_core.errors import StoreError
store = LocalStore(sys.argv[1])
{before}
try:
    store.put("shard.00001.mds", [b"header", bytes(8 << 20)])
except StoreError as error:
    print(error.kind, error.errno, error)
print(sorted(os.listdir(sys.argv[1])))
"""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.process
def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path: Path) -> None:
    """On a file system of 4 MiB, an overwrite of 8 MiB says so, and the old object stays."""
    before = 'store.put("shard.00001.mds", [b"old"])'
    script = tmp_path / "put.py"
    after = 'print(store.get("shard.00001.mds"))'
    script.write_text(_PUT.format(before=before) + after)
    mount = tmp_path / "mount"
    mount.mkdir()
    shell = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
    isolated = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or _run([*isolated, shell, "sh", str(mount), "true"]).returncode
    ):
        pytest.skip("this machine lets nobody mount a small file system")
    done = _run([*isolated, shell, "sh", str(mount), sys.executable, str(script), str(mount)])
    assert done.returncode == 0, done.stderr
    failure, listing, body = done.stdout.splitlines()
    assert failure.startswith(f"store {errno.ENOSPC} put 'shard.00001.mds' in file://")
    assert "No space left on device (ENOSPC). Free space" in failure
    assert listing == "['shard.00001.mds']"
    assert body == "b'old'"


@pytest.mark.process
def test_a_limit_on_file_sizes_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """A put that the system cuts short at 1 MiB raises, and removes its temporary file."""
    before = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    done = _run([sys.executable, "-c", _PUT.format(before=before), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    failure, listing = done.stdout.splitlines()
    assert failure.startswith(f"store {errno.EFBIG} ")
    assert "ulimit -f" in failure
    assert listing == "[]"


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """Return a folder that everybody may read and nobody may write."""
    # Not below tmp_path, whose parents only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    folder.rmdir()


@pytest.mark.process
def test_a_read_only_folder_is_access_denied(read_only_folder: Path) -> None:
    """Without the right to write, a put says whose fault it is."""
    before = "os.geteuid() or os.setresuid(65534, 65534, 65534)  # the superuser may write anywhere"
    done = _run([sys.executable, "-c", _PUT.format(before=before), str(read_only_folder)])
    assert done.returncode == 0, done.stderr
    failure, listing = done.stdout.splitlines()
    assert failure.startswith(f"access-denied {errno.EACCES} put 'shard.00001.mds'")
    assert "permissions" in failure
    assert listing == "[]"


def test_a_temporary_file_removed_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a cleaner removes the file while it is written, the put fails, not as `not-found`."""
    real = os.fsync

    def remove_and_sync(handle: int) -> None:
        for name in _names(tmp_path):
            (tmp_path / name).unlink()
        real(handle)

    monkeypatch.setattr(os, "fsync", remove_and_sync)
    with pytest.raises(StoreError, match=r"ENOENT.*removed during the call") as caught:
        LocalStore(tmp_path).put("a", [b"body"])
    assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize("call", ["writev", "fsync", "close", "replace", "link", "unlink"])
def test_a_failing_system_call_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever step of a put fails, the error is typed and the folder is as clean as before."""
    real = getattr(os, call)
    broken = [True]

    def fail_once(*args: object, **kwargs: object) -> object:
        if broken:
            broken.clear()
            if call == "close":
                real(*args, **kwargs)
            raise OSError(errno.EIO, "broken")
        return real(*args, **kwargs)

    if_absent = call in {"link", "unlink"}
    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, call, fail_once)
    with pytest.raises(StoreError, match="EIO"):
        store.put("a", [b"body"], if_absent=if_absent)
    monkeypatch.undo()
    assert not broken
    # Only a put whose link was made, but whose temporary name could not be removed, is visible.
    assert _names(tmp_path) == (["a"] if call == "unlink" else [])


def test_an_interrupted_put_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a put leaves no temporary file either."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "writev", interrupt)
    with pytest.raises(KeyboardInterrupt):
        LocalStore(tmp_path).put("a", [b"body"])
    assert _names(tmp_path) == []


def test_a_folder_that_cannot_be_flushed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems refuse to flush a folder; that, and only that, is forgiven."""
    real = os.fsync

    def refuse_folders(code: int) -> None:
        def sync(handle: int) -> None:
            if os.path.samestat(os.fstat(handle), tmp_path.stat()):
                raise OSError(code, os.strerror(code))
            real(handle)

        monkeypatch.setattr(os, "fsync", sync)

    refuse_folders(errno.EINVAL)
    assert LocalStore(tmp_path).put("a", [b"body"]).size == 4
    refuse_folders(errno.EIO)
    with pytest.raises(StoreError, match="EIO"):
        LocalStore(tmp_path).put("b", [b"body"])


def test_a_create_only_put_without_hard_links_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems without links cannot create exclusively and atomically; the error names that."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match="hard links"):
        LocalStore(tmp_path).put("a", [b"body"], if_absent=True)
    assert _names(tmp_path) == []


def test_errno_and_message_survive_pickling(tmp_path: Path) -> None:
    """An error that travels from a worker keeps number, text and class."""
    store = LocalStore(tmp_path)
    with pytest.raises(ObjectNotFoundError) as caught:
        store.get("absent")
    assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.errno, str(copy)) == (
        ObjectNotFoundError,
        errno.ENOENT,
        str(caught.value),
    )


def test_listing_a_forbidden_folder_is_access_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be read is not taken for an empty one."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "no", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(AccessDeniedError):
        list(LocalStore(tmp_path).list())
    with pytest.raises(AccessDeniedError):
        LocalStore(tmp_path).empty()
