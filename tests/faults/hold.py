"""A script that opens a writer, does what it is told line by line, and says what came of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.faults.jobs import COLUMNS, SAMPLES

from streaming_core import MDSWriter, StreamingError

__all__: list[str] = []


def _told(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _in_child(writer: MDSWriter, what: str) -> None:
    """Let a forked child touch the writer, and tell with which errors it ended."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        if what == "write":
            writer.write(SAMPLES[0])
        elif what == "write_batch":
            writer.write_batch({"id": [1], "text": ["x"]})
        elif what == "finish":
            writer.finish()
        elif what == "leave":
            with writer:
                pass
        elif what == "leave by error":
            with writer:
                raise KeyError  # noqa: TRY301 - an error within the block is the point
        elif what == "cancel":
            writer.cancel_future_jobs()
    except (StreamingError, KeyError) as error:
        _told(type(error).__name__)
    else:
        _told("nothing")
    finally:
        os._exit(0)


def main() -> None:
    """Open a writer, then: `write N`, `fork WHAT`, `linger`, `finish`."""
    try:
        writer = MDSWriter(
            out=Path(sys.argv[1]),
            columns=COLUMNS,
            size_limit=400,
            checksums=True,
            resume=True,
            max_workers=2,
        )
    except StreamingError as error:
        _told(type(error).__name__)
        return
    _told(f"opened {writer.num_safe_samples}")
    at = writer.num_safe_samples
    for line in sys.stdin:
        verb, _, what = line.strip().partition(" ")
        if verb == "write":
            for sample in SAMPLES[at : at + int(what)]:
                writer.write(sample)
            at += int(what)
        elif verb == "fork":
            _in_child(writer, what)
            continue
        elif verb == "linger":
            # A child that merely lives on, with copies of all descriptors, until its input ends.
            # It speaks for itself: until it runs, it has not let go of what it inherited.
            if os.fork() == 0:
                _told(str(os.getpid()))
                sys.stdin.read()
                time.sleep(60)
            continue
        elif verb == "finish":
            writer.finish()
        _told("done")


if __name__ == "__main__":
    main()
