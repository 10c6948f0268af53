"""Running the command line in this process, through its public entry point."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

from streaming_core.cli import main

__all__ = ["run_command"]


def run_command(*arguments: str, status: int = 0) -> str:
    """Run `streaming-core` with some arguments, and return what it printed.

    Raises:
        AssertionError: It ended with another status than `status`.
    """
    out, found = io.StringIO(), 0
    command = mock.patch.object(sys, "argv", ["streaming-core", *arguments])
    with command, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as ended:
            found = int(ended.code or 0)
    assert found == status, f"{' '.join(arguments)}: {out.getvalue()}"
    return out.getvalue()
