"""What every test and doctest of the project runs under."""

from __future__ import annotations

import gc
import multiprocessing.process
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

# Both profiles repeat the same examples, so that a failure comes from the change at hand; `make
# soak` has new ones. No example has a deadline: it would measure the machine.
_SLOW_IS_FINE: Final = [HealthCheck.too_slow]
settings.register_profile(
    "quick", deadline=None, derandomize=True, max_examples=20, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "full",
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.load_profile("quick")

# Modules that say, when they are imported, that they are left out.
_MOSAIC: Final = Path(__file__).parent / "streaming_core" / "streaming_core" / "mosaic"
_LEFT_OUT: Final = (
    *("vision", "text", "multimodal"),
    *("base/shared", "base/storage", "base/converters"),
)
collect_ignore = [str(_MOSAIC / f"{name}.py") for name in _LEFT_OUT]

# Any of these on a test says that it may start processes.
_MAY_START_PROCESSES: Final = {"process", "kill", "server", "framework", "bench"}
_STARTS_A_PROCESS: Final = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}


class _Needs:
    """Which needs the running test has shown so far."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def observe(self, event: str, args: tuple[Any, ...]) -> None:
        """Note the event if it starts or kills a process."""
        if event in _STARTS_A_PROCESS and not _is_importing():
            self.shown.add("process")
        elif event == "os.kill" and args[1] == signal.SIGKILL:
            self.shown.add("kill")


def _is_importing() -> bool:
    """Whether a module is being imported, which may ask for libraries in a process.

    Which test imports it first is chance.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


_needs = _Needs()


def pytest_collection() -> None:
    """Collect without looking for garbage: what is collected stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the many objects of modules and tests out of every later look for garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    """Observe which tests start processes, whichever way they do."""
    sys.addaudithook(_needs.observe)
    start = multiprocessing.process.BaseProcess.start

    def observed(process: multiprocessing.process.BaseProcess) -> None:
        _needs.shown.add("process")  # spawned ones raise no audit event
        start(process)

    multiprocessing.process.BaseProcess.start = observed  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that starts or kills processes and does not carry the marker for it."""
    _needs.shown.clear()
    result = yield
    markers = {mark.name for mark in item.iter_markers()}
    if "kill" in _needs.shown and "kill" not in markers:
        pytest.fail("this test kills a process: mark it with `pytest.mark.kill`", pytrace=False)
    if "process" in _needs.shown and not markers & _MAY_START_PROCESSES:
        pytest.fail("this test starts a process: mark it with `pytest.mark.process`", pytrace=False)
    return result


@pytest.fixture(autouse=True)
def _doctest_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run doctests in a folder of their own, so that an example may write where it stands."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    before = Path.cwd()
    os.chdir(request.getfixturevalue("tmp_path"))
    try:
        yield
    finally:
        os.chdir(before)
