"""The cases of the fixtures of all releases, and what the tests of several scenarios ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.compat.archive import fixtures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.compat.archive import Fixture

__all__ = ["Case", "assert_told", "cases"]


class Case(NamedTuple):
    """One case of a scenario, as one release wrote it."""

    fixture: Fixture
    name: str
    settings: dict[str, Any]
    """What the manifest says of it."""


def cases(scenario: str, wanted: Callable[[str], bool] | None = None) -> pytest.MarkDecorator:
    """Parametrize a test by the cases of a scenario, over all releases.

    A scenario without fixtures is an error, so that none gets lost unseen.
    """
    found = [
        Case(fixture, name, settings)
        for fixture in fixtures(scenario)
        for name, settings in fixture.manifest["cases"].items()
        if wanted is None or wanted(name)
    ]
    if not found:
        msg = f"no fixtures of {scenario}"
        raise FileNotFoundError(msg)
    return pytest.mark.parametrize(
        "case", found, ids=[f"{c.fixture.release}-{c.name}" for c in found]
    )


def assert_told(
    fetched: Iterable[str], before: Iterable[str], caplog: pytest.LogCaptureFixture
) -> bool:
    """Tell whether nothing was fetched that the old release had already; if so, the log says why.

    Building something again after an upgrade is right, doing so silently is not.
    """
    again = sorted(set(fetched) - set(before))
    if not again:
        return True
    said = [
        entry.getMessage()
        for entry in caplog.records
        # The figures of an iteration are logged in any case.
        if entry.name.startswith("streaming") and not hasattr(entry, "metrics")
    ]
    assert said, f"fetched again without a word: {', '.join(again[:5])}"
    return False
