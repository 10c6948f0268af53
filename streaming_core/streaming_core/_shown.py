"""What objects say of themselves: a line, and a table in notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Shown"]


class Shown:
    """Base of what shows its facts.

    Example:
        >>> class Wheel(Shown):
        ...     def _streaming_facts(self):
        ...         return {"spokes": 32, "tire": None}
        >>> Wheel()
        Wheel(spokes=32)
    """

    __slots__ = ()

    def _streaming_facts(self) -> Mapping[str, Any]:
        """Return what is shown, by name; None is left out."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            facts = self._streaming_facts()
        except AttributeError:  # it is not set up yet
            return object.__repr__(self)
        shown = ", ".join(f"{name}={fact!r}" for name, fact in facts.items() if fact is not None)
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(fact))}</td></tr>"
            for name, fact in self._streaming_facts().items()
            if fact is not None
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
