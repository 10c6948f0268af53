"""Optional dependencies: imported where used, and named by the error when missing."""

from __future__ import annotations

import importlib
from typing import Any

from streaming_core.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> Any:  # noqa: ANN401 - a module of any kind
    """Import `module` or raise `MissingExtraError` naming the extra that brings it.

    Example:
        >>> require("json", extra="all", purpose="the example").dumps([1])
        '[1]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        msg = (
            f"{purpose} needs the package {module.partition('.')[0]!r}, which is not installed. "
            f"Install it with: pip install 'streaming-core[{extra}]'"
        )
        raise MissingExtraError(msg) from error
