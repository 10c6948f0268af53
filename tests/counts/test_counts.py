"""Fixed scenarios take as many requests, bytes, files, processes, and allocations as recorded.

`recorded.json` holds the figures, and the versions of Python and of the packages they were recorded
with. Requests, bytes, files, and processes are compared exactly and depend on none of these; bytes
of Parquet files and allocations have tolerances, for which see `figures`. A change that is meant is
recorded by `python -m tests.counts.record`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from tests.counts.figures import RECORD, Workplace, differences, workplace
from tests.counts.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDED: Final[dict[str, dict[str, int]]] = json.loads(RECORD.read_text())["scenarios"]

_OPENS_TWICE: Final = """
import streaming_core, subprocess, sys, threading
kept, real = [], streaming_core.StreamingDataset
def twice(**options):
    subprocess.run([sys.executable, "-c", ""], check=True)
    for _ in range(20):
        threading.Thread(target=int).start()
    kept.extend([number] for number in range(100_000))
    kept.extend(real(**options) for _ in range(5))
    return real(**options)
streaming_core.StreamingDataset = twice
"""
_IMPORTS_MORE: Final = """
import builtins
real = builtins.__import__
def more(name, *others):
    if name == "streaming_core":
        real("PIL")
        real("streaming_reader")
    return real(name, *others)
builtins.__import__ = more
"""
_WRITES_TWICE: Final = """
import streaming_core
class Twice(streaming_core.MDSWriter):
    def write(self, sample):
        super().write(sample)
        super().write(sample)
streaming_core.MDSWriter = Twice
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    """Return the datasets of all scenarios."""
    with workplace() as found:
        yield found


@pytest.mark.process
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_takes_what_is_recorded(place: Workplace, name: str) -> None:
    """A scenario has the recorded figures, neither more nor fewer."""
    found = differences(name, _RECORDED.get(name, {}), place.run(name))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "patch", "expected"),
    [
        (
            "open_many_shards",
            _OPENS_TWICE,
            {
                "HEAD requests",
                "bytes allocated at most",
                "bytes of request headers",
                "calls of open",
                "memory blocks kept",
                "processes",
                "threads",
            },
        ),
        ("import_package", _IMPORTS_MORE, {"modules of our own", "other packages"}),
        (
            "upload_to_s3",
            _WRITES_TWICE,
            {"PUT requests", "bytes of request bodies", "bytes of request headers"},
        ),
    ],
)
def test_a_regression_is_found(place: Workplace, name: str, patch: str, expected: set[str]) -> None:
    """Figures that a patched scenario has more of are named."""
    found = differences(name, _RECORDED[name], place.run(name, patch=patch))
    more = {line.partition(":")[0].partition(", ")[2] for line in found if "regression" in line}
    assert more >= expected, found


def test_fewer_and_missing_figures_are_told() -> None:
    """A figure that went down, or is not recorded, is a difference with the command to run."""
    (fewer,) = differences("cold_epoch", {"GET requests": 10}, {"GET requests": 9})
    assert "recorded 10, got 9" in fewer
    assert "python -m tests.counts.record cold_epoch" in fewer
    (new,) = differences("cold_epoch", {}, {"LIST requests": 1})
    assert "recorded 0, got 1" in new


def test_every_recorded_scenario_exists() -> None:
    """The record has the scenarios that there are, in the same order."""
    assert list(_RECORDED) == list(SCENARIOS)
