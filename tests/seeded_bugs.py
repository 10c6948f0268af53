"""Check that the default test suite catches bugs: three in each package, one at a time.

    python tests/seeded_bugs.py [NAME ...]

Each bug changes one place in a copy of the tree and runs the tests of `make test` there until one
fails. The command lists the bugs that no test caught, and fails if there are any. When the code
around a bug changes, change the bug too: the command says which places it no longer finds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1]
_NOT_COPIED = (".git", ".venv*", ".servers", ".*_cache", ".hypothesis", "__pycache__")
_ARGUMENTS = ("-x", "-q", "--numprocesses", "auto", "--dist", "loadgroup")


class Bug(NamedTuple):
    """One wrong line."""

    name: str
    file: str
    right: str
    wrong: str


BUGS: Final = (
    Bug(
        "core-record-length",  # a record whose columns do not fill it is read all the same
        "streaming_core/streaming_core/_format/_mds/_record.py",
        "if needed != size:",
        "if needed > size:",
    ),
    Bug(
        "core-one-try-less",
        "streaming_core/streaming_core/_store/_policy.py",
        "self._failures >= policy.tries:",
        "self._failures + 1 >= policy.tries:",
    ),
    Bug(
        "core-decompression-ends-early",  # what stops before its last frame ends is accepted
        "streaming_core/streaming_core/_codec/_inflate.py",
        "if decoder is not None or not members:",
        "if not members:",
    ),
    Bug(
        "writer-cut",  # a shard that exactly reaches its limit is cut one record too early
        "writer/streaming_writer/_cut.py",
        'np.searchsorted(ends, done + room, side="right")',
        'np.searchsorted(ends, done + room, side="left")',
    ),
    Bug(
        "writer-resume",  # a record in the journal is forgotten
        "writer/streaming_writer/_journal.py",
        "return sorted(int(match[1]) for match in keys if match)",
        "return sorted(int(match[1]) for match in keys if match)[:-1]",
    ),
    Bug(
        "writer-merge-order",  # parts in the order of their names as one text
        "writer/streaming_writer/_merge.py",
        'sorted(listings[-1].indexes, key=lambda key: key.split("/"))',
        "sorted(listings[-1].indexes)",
    ),
    Bug(
        "reader-shuffle-seed",
        "reader/streaming_reader/_order/_shuffle.py",
        "rng = np.random.default_rng(seed + epoch)",
        "rng = np.random.default_rng(seed + epoch + 1)",
    ),
    Bug(
        "reader-cache-limit",  # the shard that is brought into place is not counted
        "reader/streaming_reader/_cache/_group.py",
        "need = held.used(with_fetching=False) + entry.size - self.limit",
        "need = held.used(with_fetching=False) - self.limit",
    ),
    Bug(
        "reader-state",  # samples before an earlier resume are forgotten
        "reader/streaming_reader/_epochs.py",
        "sample=offset + (num_samples or 0),",
        "sample=num_samples or offset,",
    ),
)


def main(names: list[str]) -> int:
    """Try the named bugs, or all; return the exit code."""
    missed = []
    for bug in BUGS:
        if names and bug.name not in names:
            continue
        start = time.monotonic()
        failed = _first_failure(bug)
        seconds = time.monotonic() - start
        print(f"{bug.name}: {failed or 'NOT CAUGHT'} ({seconds:.0f} s)", flush=True)  # noqa: T201
        if failed is None:
            missed.append(bug.name)
    return 1 if missed else 0


def _first_failure(bug: Bug) -> str | None:
    """Return the first test that fails with the bug in place, None if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        for shared in (".venv", ".servers"):
            (copy / shared).symlink_to(ROOT / shared)
        source = copy / bug.file
        text = source.read_text()
        if text.count(bug.right) != 1:
            sys.exit(f"{bug.name}: {bug.file} has {text.count(bug.right)} times: {bug.right}")
        source.write_text(text.replace(bug.right, bug.wrong))
        done = subprocess.run(
            [copy / ".venv/bin/python", "-m", "pytest", *_ARGUMENTS, "-m", _default_tests()],
            cwd=copy,
            env=_environment(copy),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if found is None:
        sys.exit(f"{bug.name}: no test ran:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return found[1]


def _default_tests() -> str:
    """Return what `make test` selects."""
    found = re.search(r"^DEFAULT_TESTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return found[1]


def _environment(tree: Path) -> dict[str, str]:
    """Return an environment that imports the packages of `tree`, and keeps bytecode."""
    path = os.pathsep.join(str(tree / name) for name in ("streaming_core", "writer", "reader"))
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
