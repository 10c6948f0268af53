"""Makes the fixtures of this release: `python tests/compat/make_fixtures.py [SCENARIO ...]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.compat.archive import Fixture
from tests.compat.making import made_by
from tests.compat.making_caches import make_caches
from tests.compat.making_checkpoints import make_checkpoints
from tests.compat.making_conversions import make_conversions, make_datasets
from tests.compat.making_sources import make_hub, make_litdata, make_sources, make_tables

import streaming_core

if TYPE_CHECKING:
    from collections.abc import Callable

_SCENARIOS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {
    "caches": make_caches,
    "checkpoints": make_checkpoints,
    "conversions": make_conversions,
    "datasets": make_datasets,
    "hub": make_hub,
    "litdata": make_litdata,
    "sources": make_sources,
    "tables": make_tables,
}


def main() -> None:
    """Make all scenarios, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"one of {', '.join(_SCENARIOS)}; default: all")
    parser.add_argument("--overwrite", action="store_true", help="replace fixtures that exist")
    given = parser.parse_args()
    unknown = sorted(set(given.scenario) - set(_SCENARIOS))
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}; there are {', '.join(_SCENARIOS)}")
    wanted = [Fixture(streaming_core.__version__, name) for name in given.scenario or _SCENARIOS]
    there = [str(fixture) for fixture in wanted if fixture.manifest_path.exists()]
    if there and not given.overwrite:
        parser.error(f"fixtures are kept for good; --overwrite replaces {', '.join(there)}")
    for fixture in wanted:
        environment = dict(os.environ)
        with tempfile.TemporaryDirectory(prefix="streaming-core-compat-") as temporary:
            folder = Path(temporary) / "fixture"
            folder.mkdir()
            manifest = _SCENARIOS[fixture.scenario](folder)
            fixture.save(folder, {"made_by": made_by(), **manifest})
        os.environ.clear()
        os.environ.update(environment)
        sys.stdout.write(f"{fixture}: {fixture.archive.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
