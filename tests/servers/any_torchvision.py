"""A stand-in for torchvision with any submodule and any name, for those who only import them."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__path__: list[str] = []
__version__ = "0"


class _Any(ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - as modules have it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find every submodule."""
        del path, target
        return ModuleSpec(name, self, is_package=True) if name.startswith("torchvision.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make it."""
        return _Any(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is."""


sys.meta_path.insert(0, _Finder())
