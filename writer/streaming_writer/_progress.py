"""One line on the terminal: how far a conversion is."""

from __future__ import annotations

import contextlib
import sys
import time

from streaming_core._units import format_bytes, format_count

__all__ = ["Progress"]

_SECONDS_BETWEEN_LINES = 0.1


class Progress:
    """Counts samples and bytes of a writer and shows them on standard error if asked to."""

    def __init__(self, *, shown: bool, label: str) -> None:
        """Start the clock; nothing is printed unless `shown`."""
        self._shown = shown
        self._label = label
        self._start = time.monotonic()
        self._next_line = 0.0
        self._samples = 0
        self._bytes = 0
        # One entry a shard: threads add to it without a lock, which an interrupt could leave held.
        self._stored: list[None] = []

    def add(self, *, samples: int, size: int) -> None:
        """Count what has been encoded; only the thread that writes calls this."""
        self._samples += samples
        self._bytes += size
        if self._shown and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            self._print("\r")

    def add_shard(self) -> None:
        """Count a shard that has become durable; any thread may call this."""
        self._stored.append(None)

    def close(self) -> None:
        """Print the final line."""
        if self._shown:
            self._print("\r", "\n")
            self._shown = False

    def _print(self, start: str, end: str = "") -> None:
        seconds = max(time.monotonic() - self._start, 1e-9)
        line = (
            f"{self._label}: {format_count(self._samples)} samples, {format_bytes(self._bytes)}, "
            f"{len(self._stored)} shards, {format_count(self._samples / seconds)} samples/s, "
            f"{format_bytes(self._bytes / seconds)}/s"
        )
        # Nobody looking any more is no reason to stop a conversion.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{start}{line:<79}{end}")
            sys.stderr.flush()
