"""What a backend tells the contract about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming_core._store import ObjectInfo, Store

__all__ = ["DEADLINE_SECONDS", "Abilities"]

DEADLINE_SECONDS = 120
"""How long a thread or process of a test may take."""


class Abilities:
    """Settings that the parts of the contract share."""

    unsupported: ClassVar[Mapping[str, str]] = {}
    """Ability -> why the backend lacks it. Abilities:

    - `create-only`: `put` with `if_absent` refuses an object that is there;
    - `create-only-race`: of several that create one object at once, one wins (needs `create-only`);
    - `etag-of-each-write`: the etag changes also if an object is replaced at once by another of its
      size;
    - `fork`: use in a forked child;
    - `list`: `list` works; without it, it has to raise `StoreError`;
    - `overwrite-while-read`: an object can be read at any moment while it is overwritten;
    - `shared-between-processes`: one process sees what another has put.
    """

    num_overwrites: ClassVar[int] = 50
    """How often an object is overwritten under a concurrent reader; fewer for slow backends."""

    def require(self, ability: str) -> None:
        """Skip the running test, with the backend's reason, if it lacks `ability`."""
        if ability in self.unsupported:
            pytest.skip(f"{ability}: {self.unsupported[ability]}")

    def assert_holds(self, store: Store, expected: Iterable[ObjectInfo | str]) -> None:
        """Assert that the store has these objects, given by key or all that is known, and no other.

        Where a backend has no listing, that there is no other cannot be seen.
        """
        wanted = [(info, info) if isinstance(info, str) else (info.key, info) for info in expected]
        if "list" in self.unsupported:
            found = [store.head(key) for key, _ in wanted]
        else:
            found = list(store.list())
        assert [info.key for info in found] == [key for key, _ in wanted]
        for info, (_, known) in zip(found, wanted, strict=True):
            assert isinstance(known, str) or info == known
