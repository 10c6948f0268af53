"""Runs the command line as `python -m streaming_core.cli`."""

from __future__ import annotations

from streaming_core.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
