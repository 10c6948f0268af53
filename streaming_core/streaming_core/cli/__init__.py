"""The command line `streaming-core`: look at data sets, check them, join them.

Exit codes: 0 all is well; 1 the data is not (`verify` found problems); 2 the command was wrong, or
what it asked for is not there or cannot be read; 130 interrupted. Answers go to standard output,
errors and progress to standard error.
"""

from __future__ import annotations

import sys

from streaming_core._extras import require
from streaming_core.errors import MissingExtraError

__all__ = ["main"]

_CANNOT_RUN = 2


def main() -> None:
    """Run the command line with the arguments of this process, and exit with its code.

    Without the extra `cli` it says in one line how to install it, and exits with 2.
    """
    try:
        require("rich", extra="cli", purpose="the command line")
        require("typer", extra="cli", purpose="the command line")
    except MissingExtraError as error:
        print(f"streaming-core: {error}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)
    from streaming_core.cli._app import run  # noqa: PLC0415 - needs the extra checked above

    run()
