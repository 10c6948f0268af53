"""The store contract as the stores of this project are tested: with the markers of our suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_core.testing import StoreContract

if TYPE_CHECKING:
    from streaming_core._store import Store

__all__ = ["MarkedContract"]


class MarkedContract(StoreContract):
    """The contract, with markers on the tests that start processes."""

    @pytest.mark.process
    def test_works_after_a_fork(self, store: Store) -> None:
        """A forked child reads what its parent put, and puts; the parent goes on."""
        super().test_works_after_a_fork(store)

    @pytest.mark.process
    def test_one_process_sees_what_another_put(self, store: Store) -> None:
        """Once a child's put has returned, its parent reads the object."""
        super().test_one_process_sees_what_another_put(store)
