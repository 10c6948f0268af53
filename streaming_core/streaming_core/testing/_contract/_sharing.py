"""What holds when several threads or processes use one store."""

from __future__ import annotations

import multiprocessing
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streaming_core.testing._contract._abilities import DEADLINE_SECONDS, Abilities

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._store import Store

__all__ = ["SharingContract"]


class SharingContract(Abilities):
    """Tests of concurrent use."""

    # --- threads and processes --------------------------------------------------------------------

    def test_serves_eight_threads(self, store: Store) -> None:
        """Eight threads put, read, list and delete at once, and each finds its own data."""

        def work(number: int) -> None:
            own = store.child(f"thread-{number}")
            for turn in range(10):
                body = f"{number}-{turn}".encode() * 1000
                own.put(f"{turn}", [body])
                assert own.get(f"{turn}") == body
                assert own.get_ranges(f"{turn}", [(-4, None)]) == [body[-4:]]
            own.delete("9")
            self.assert_holds(own, [str(turn) for turn in range(9)])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        self.assert_holds(store, [f"thread-{i}/{turn}" for i in range(8) for turn in range(9)])

    def test_works_after_a_fork(self, store: Store) -> None:
        """A forked child reads what its parent had put, and puts; the parent goes on."""
        self.require("fork")
        store.put("parent", [b"from the parent"])

        def work() -> None:
            assert store.get("parent") == b"from the parent"
            store.put("child", [b"from the child"])
            assert store.get("child") == b"from the child"

        assert _run_forked(work) == 0
        assert store.get("parent") == b"from the parent"

    def test_one_process_sees_what_another_put(self, store: Store) -> None:
        """Once a child's put has returned, its parent reads the object."""
        self.require("fork")
        self.require("shared-between-processes")
        assert _run_forked(lambda: store.put("child", [b"from the child"])) == 0
        assert store.get("child") == b"from the child"


def _run_forked(work: Callable[[], object]) -> int | None:
    """Run `work` in a forked child and return its exit code; None if it missed the deadline."""
    process = multiprocessing.get_context("fork").Process(target=work)
    with warnings.catch_warnings():
        # A backend may keep threads; that a fork copies none of them is what the test is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join(DEADLINE_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode
