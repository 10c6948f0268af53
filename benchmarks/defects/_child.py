"""Runs one scenario of one side: `_child.py SIDE NAME DATA WORK OUT`; the result goes to OUT."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Last, so that nothing of the checkout stands in for a peer: the servers of the tests.
sys.path.append(str(HERE.parent.parent))


def main() -> int:
    """Return 0 whatever the scenario finds, an error included."""
    from _found import raised  # noqa: PLC0415 - found by the path above

    side, name, data, work, out = sys.argv[1:]
    try:
        found = getattr(importlib.import_module(side), name)(Path(data), Path(work))
    except Exception as error:  # noqa: BLE001 - what a peer raises is what is asked for
        traceback.print_exc()
        if "RANK" in __import__("os").environ:
            return 1
        found = (False, raised(error))
    Path(out).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
