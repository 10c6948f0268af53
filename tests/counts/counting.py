"""Counts what a piece of work in this process takes."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

from tests.counts.server import START

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["Box"]

_STARTS_PROCESS: Final = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}
)
_OWN: Final = ("streaming_core", "streaming_writer", "streaming_reader")


@dataclass
class Box:
    """Where a scenario works, and what it took."""

    folder: Path
    """A folder that is empty at first."""
    data: Path
    """The datasets of `material`."""
    url: str
    """The server of the same datasets."""
    figures: dict[str, int] = field(default_factory=dict)
    """What `counted` found."""
    _is_counting: bool = False
    _opens: list[str] = field(default_factory=list)
    _processes: int = 0
    _threads: int = 0

    def remote(self, name: str) -> str:
        """Return the URL of a dataset on the web server."""
        return f"{self.url}/bucket/{name}"

    @contextmanager
    def counted(self, *, files: bool = True, memory: bool = False) -> Generator[None]:
        """Count what the block takes, from its start to its end.

        `files` are those of the datasets and of the scenario's own folder that Python opens, so
        what imports open is left out. With `memory`, every allocation is traced, which is slow.
        """
        self._watch()
        if self.url:
            urlopen(self.url + START, timeout=60).close()  # noqa: S310 - our own server
        gc.collect()
        blocks = sys.getallocatedblocks()
        if memory:
            tracemalloc.start()
        self._is_counting = True
        try:
            yield
        finally:
            self._is_counting = False
        if memory:
            self.figures["bytes allocated at most"] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            gc.collect()
            self.figures["memory blocks kept"] = sys.getallocatedblocks() - blocks
        if files:
            self.figures["files opened"] = len({*self._opens})
            self.figures["calls of open"] = len(self._opens)
        self.figures["processes"] = self._processes
        self.figures["threads"] = self._threads

    @contextmanager
    def imported(self) -> Generator[None]:
        """Count the modules that the block imports."""
        before = {*sys.modules}
        yield
        new = {name for name in {*sys.modules} - before if sys.modules[name] is not None}
        packages = {name.partition(".")[0] for name in new}
        self.figures["modules of our own"] = sum(name.split(".")[0] in _OWN for name in new)
        foreign = {name for name in packages if _is_package(name)}
        self.figures["other packages"] = len(foreign)

    def _watch(self) -> None:
        owner = os.getpid()
        roots = (f"{self.folder}/", f"{self.data}/")
        start = threading.Thread.start

        def note(event: str, args: tuple[Any, ...]) -> None:
            if not self._is_counting or os.getpid() != owner:
                return
            if event == "open":
                path = str(args[0])
                if path.startswith(roots):
                    self._opens.append(path)
            elif event in _STARTS_PROCESS:
                self._processes += 1

        def counted_start(thread: threading.Thread) -> None:
            if self._is_counting:
                self._threads += 1
            start(thread)

        sys.addaudithook(note)
        threading.Thread.start = counted_start  # type: ignore[assignment, method-assign]


def _is_package(name: str) -> bool:
    """Tell whether a module is neither ours nor of the standard library."""
    return (
        name not in sys.stdlib_module_names
        and name not in {*_OWN, "tests", "__main__", "__mp_main__"}
        and not name.startswith("_")
    )
