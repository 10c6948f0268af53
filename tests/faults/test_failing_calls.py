"""A system call that fails is an error that names it, never a data set that lacks something."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.faults.forks import Inject, Outcome, Server
from tests.faults.jobs import JOBS, Tree, check_consistent, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

_JOB = JOBS["small"]
_QUICK_CALLS = ("fsync", "rename", "write")
_CALLS = (*_QUICK_CALLS, "open")
_MOST = 60
"""More calls of one kind than a small conversion makes in a thread."""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Return what an undisturbed run leaves."""
    root = tmp_path_factory.mktemp("whole")
    _JOB.run(root)
    return tree(root)


Servers = dict[tuple[str, bool, str], Server]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Return a dict that keeps the servers of this module, one for each kind of failure.

    `open` has servers of its own: there strace fires at a late call only, which takes long.
    """
    with ExitStack() as stack:

        class _Lazy(Servers):
            def __missing__(self, key: tuple[str, bool, str]) -> Server:
                what, forever, call = key
                calls = ("open",) if call == "open" else _QUICK_CALLS
                if call != calls[0]:
                    self[key] = self[what, forever, calls[0]]
                else:
                    self[key] = stack.enter_context(Server(Inject(what, calls, forever)))
                return self[key]

        yield _Lazy()


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize(
    ("name", "forever", "step"),
    [
        ("EIO", False, 1),
        ("ENOSPC", True, 2),
        ("EDQUOT", False, 5),
    ],
)
def test_a_failed_call_is_a_typed_error_and_a_retry_after_repair_works(
    tmp_path: Path,
    servers: Servers,
    wanted: Tree,
    call: str,
    name: str,
    forever: bool,
    step: int,
) -> None:
    """Wherever it happens: `StoreError` with cause and folder, nothing torn; then a whole."""
    failures = {"main": 0, "worker": 0}
    server = servers[f"error={name}", forever, call]
    for thread in failures:
        for nth in range(1, _MOST, step):
            root = tmp_path / f"{thread}-{nth}"
            root.mkdir()
            outcome = server.run(_JOB.name, root, fail=(call, nth, thread))
            if outcome["code"] == 0:
                assert tree(root) == wanted
                break
            failures[thread] += 1
            _check_error(outcome, getattr(errno, name), root)
            check_consistent(_JOB, root, {}, wanted)
            _JOB.run(root)
            assert tree(root) == wanted, f"{call} {nth} of the {thread} thread"
        else:
            pytest.fail(f"a small conversion makes {_MOST} times {call}")
    assert all(failures.values())


def _check_error(outcome: Outcome, code: int, root: Path) -> None:
    error = outcome["error"]
    assert outcome["code"] == 1
    assert "StoreError" in error["kinds"], error["trace"]
    assert error["errno"] == code
    assert os.strerror(code) in error["text"]
    assert str(root / "out") in error["text"]


@pytest.mark.parametrize("call", ["fsync", "open", "write"])
def test_an_interrupted_call_is_repeated(
    tmp_path: Path, servers: Servers, wanted: Tree, call: str
) -> None:
    """EINTR, which a signal may cause anywhere, is no failure."""
    for thread in ("main", "worker"):
        for nth in range(1, 14, 3):
            root = tmp_path / f"{thread}-{nth}"
            outcome = servers["error=EINTR", False, call].run(
                _JOB.name, root, fail=(call, nth, thread)
            )
            assert outcome["code"] == 0, outcome["error"]
            assert tree(root) == wanted


def test_short_writes_are_continued(tmp_path: Path, servers: Servers, wanted: Tree) -> None:
    """A write that takes five bytes at a time gives the same files."""
    outcome = servers["error=EINTR", False, "write"].run(_JOB.name, tmp_path, patch="short-writes")
    assert outcome["code"] == 0, outcome["error"]
    assert tree(tmp_path) == wanted


@pytest.mark.parametrize("thread", ["main", "worker"])
def test_bytes_that_the_system_claims_to_have_taken_are_missed(
    tmp_path: Path, servers: Servers, wanted: Tree, thread: str
) -> None:
    """A write that reports five bytes and writes none is found before the file is published."""
    outcome = servers["retval=5", False, "write"].run(
        _JOB.name, tmp_path, fail=("write", 2, thread)
    )
    _check_error(outcome, errno.EIO, tmp_path)
    assert not (tmp_path / "out/index.json").exists()
    _JOB.run(tmp_path)
    assert tree(tmp_path) == wanted


@pytest.mark.parametrize("call", ["close", "mkdir", "rmdir", "unlink"])
def test_other_calls_that_fail_tear_nothing(tmp_path: Path, wanted: Tree, call: str) -> None:
    """An error of a call that matters less is raised or does no harm, and a retry is whole."""
    failures = 0
    with Server(Inject("error=EIO", (call,))) as server:
        for thread in ("main", "worker", "request"):
            for nth in range(1, 16 if call == "close" else 6):
                root = tmp_path / f"{thread}-{nth}"
                root.mkdir()
                outcome = server.run(_JOB.name, root, fail=(call, nth, thread))
                check_consistent(_JOB, root, {}, wanted)
                if outcome["code"]:
                    failures += 1
                    _check_error(outcome, errno.EIO, root)
                    _JOB.run(root)
                assert tree(root) == wanted, f"{call} {nth} of the {thread} thread"
    assert failures
