"""Names that are looked up when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazily"]


def lazily(
    module: str, homes: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module.

    `homes` has the module that each name is of, empty for a submodule. `absent` has what is left
    out, and what to do instead.
    """
    reasons = absent or {}

    def load(name: str) -> Any:  # noqa: ANN401 - whatever it is
        if name in reasons:
            # As an AttributeError, its text would be lost in `from module import name`.
            msg = f"{module}.{name} is left out: {reasons[name]}"
            raise ImportError(msg, name=module)
        if name not in homes:
            msg = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(msg, name=name)
        if not homes[name]:
            return importlib.import_module(f"{module}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return load, lambda: sorted(homes)
