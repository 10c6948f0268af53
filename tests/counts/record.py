"""Record the figures of scenarios again: `python -m tests.counts.record [NAME ...]`.

Run it in the root of the repository, after a change that is meant. Without names, all scenarios are
recorded. Each runs several times, and figures that must not depend on timing are compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.counts.figures import RECORD, differences, workplace
from tests.counts.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.counts.figures import Workplace

__all__ = ["main"]


def main() -> None:
    """Record what the arguments name, and print what has changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="Scenarios; all by default.")
    parser.add_argument("--runs", type=int, default=5, help="How often each scenario runs.")
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*SCENARIOS}:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    document = json.loads(RECORD.read_text()) if RECORD.exists() else {"scenarios": {}}
    known = document["scenarios"]
    with workplace() as place:
        for name in arguments.names or SCENARIOS:
            figures = _measured(place, name, arguments.runs)
            for line in differences(name, known.get(name, figures), figures):
                print(line.partition(". ")[0])  # noqa: T201 - a script
            known[name] = figures
    document = {
        "recorded with": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "pyarrow", "torch")},
        },
        "scenarios": {name: known[name] for name in SCENARIOS if name in known},
    }
    RECORD.write_text(json.dumps(document, indent=2) + "\n")


def _measured(place: Workplace, name: str, runs: int) -> dict[str, int]:
    """Return the figures of several runs as one: the most, or the median where that is enough."""
    found = [place.run(name) for _ in range(runs)]
    names = dict.fromkeys(figure for run in found for figure in run)
    figures = {figure: _joined([run.get(figure, 0) for run in found]) for figure in names}
    for run in found:
        if unstable := differences(name, figures, run):
            message = f"the figures differ between runs: {unstable}"
            raise SystemExit(message)
    return figures


def _joined(values: Sequence[int]) -> int:
    return max(values) if max(values) < 1000 else statistics.median_high(values)


if __name__ == "__main__":
    main()
