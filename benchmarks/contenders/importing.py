"""How long an import takes in an interpreter that has imported none of it.

Options: `module`; `names` to take from it, separated by blanks; `distribution`, for its version.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Import:
    payload_bytes = 0

    def __init__(self, module: str, names: list[str], distribution: str) -> None:
        self.distributions: tuple[str, ...] = (distribution,)
        self._module = module
        self._names = names

    def run(self, out: Path) -> None:
        del out
        module = importlib.import_module(self._module)
        for name in self._names:
            getattr(module, name)

    def count(self, out: Path) -> None:
        """See that what was imported is there."""
        del out
        assert all(hasattr(sys.modules[self._module], name) for name in self._names)


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Import nothing yet, and see that nobody else has."""
    assert task.work == "imports"
    module = options["module"]
    assert module not in sys.modules, f"{module} is imported already"
    return _Import(module, options.get("names", "").split(), options["distribution"])
