"""What a backend tells the contract about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEADLINE_SECONDS", "Abilities"]

DEADLINE_SECONDS = 60
"""How long a thread or process of a test may take."""


class Abilities:
    """Settings that the parts of the contract share."""

    unsupported: ClassVar[Mapping[str, str]] = {}
    """Ability -> why the backend lacks it. Abilities: `create-only` (put with `if_absent`), `fork`
    (use in a forked child), `shared-between-processes` (one process sees what another has put)."""

    num_overwrites: ClassVar[int] = 50
    """How often an object is overwritten under a concurrent reader; fewer for slow backends."""

    def require(self, ability: str) -> None:
        """Skip the running test, with the backend's reason, if it lacks `ability`."""
        if ability in self.unsupported:
            pytest.skip(f"{ability}: {self.unsupported[ability]}")
