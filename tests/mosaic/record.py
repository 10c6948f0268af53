"""What the clients print with mosaicml-streaming itself, written to `recorded.json`.

    python tests/mosaic/record.py PYTHON

`PYTHON` is that of an environment with mosaicml-streaming 0.13.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

__all__ = ["CLIENTS", "RECORDED", "printed"]

CLIENTS: Final = Path(__file__).parent / "clients"
"""Scripts as users of mosaicml-streaming have them."""
RECORDED: Final = Path(__file__).parent / "recorded.json"


def printed(python: str, script: Path, *arguments: str) -> Any:
    """Run a script and return the JSON that it prints last."""
    done = subprocess.run(
        [python, str(script), *arguments], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _record(python: str) -> None:
    found = {}
    for script in sorted(CLIENTS.glob("*.py")):
        if "composer" not in script.name:  # which is compared with itself
            with tempfile.TemporaryDirectory() as folder:
                found[script.stem] = printed(python, script, folder)
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    _record(sys.argv[1])
