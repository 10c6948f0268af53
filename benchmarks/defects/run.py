"""Ask every side whether it keeps each promise: `python benchmarks/defects/run.py [SCENARIO …]`.

Runs under the project's own environment; peers have theirs, which `setup_peers.sh` beside it makes.
Prints a table, and with `--publish` writes it into `docs/comparison-any-format.md`. The exit status
is 1 if we kept a promise less than all.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from _cases import GROUPS
from _data import write_data
from _found import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _cases import Case

__all__ = ["main"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_DEADLINE_SECONDS = 400
_LONGEST = 130
_PAGE = ROOT / "docs/comparison-any-format.md"
_BEGIN, _END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


class Side(NamedTuple):
    """Who is asked."""

    module: str
    title: str
    python: Path
    distribution: str

    @property
    def scenarios(self) -> frozenset[str]:
        """The scenarios that it has."""
        tree = ast.parse((HERE / f"{self.module}.py").read_text(encoding="utf-8"))
        return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


SIDES = (
    Side(
        "peer_tdu",
        "torch-dataloader-utils",
        ROOT / ".venv-bench-defects/bin/python",
        "torch-dataloader-utils",
    ),
    Side(
        "peer_easydata", "EasyData (EasyDeL)", ROOT / ".venv-bench-easydata/bin/python", "easydel"
    ),
    Side("ours", "streaming-core", Path(sys.executable), "streaming-core"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what `argv` asks for; 0 when we kept all promises, 1 when not, 2 for an unknown name."""
    options = _parse(argv)
    chosen = {
        group: [case for case in cases if _matches(case.name, options.scenarios)]
        for group, cases in GROUPS.items()
    }
    if not any(chosen.values()):
        print(f"no scenario is called {' or '.join(options.scenarios)}; there are {_all_names()}")
        return 2
    sides = [side for side in SIDES if not options.sides or side.module in options.sides]
    for side in sides:
        if not side.python.exists():
            print(f"{side.title} is not installed: run {HERE / 'setup_peers.sh'}", file=sys.stderr)
            return 2
    found: dict[str, dict[str, Found]] = {}
    for side in sides:
        with tempfile.TemporaryDirectory(prefix="defects-") as folder:
            write_data(Path(folder, "data"))
            found[side.module] = _asked(side, chosen, Path(folder))
    text = _markdown(chosen, sides, found)
    print(text)
    if options.publish:
        _publish(text)
    return 0 if all(one.kept for one in found.get("ours", {}).values()) else 1


def _asked(side: Side, chosen: dict[str, list[Case]], folder: Path) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for cases in chosen.values():
        for case in cases:
            if case.name in side.scenarios:
                found[case.name] = one = _one(side, case.name, folder)
                said = "kept" if one.kept else "not kept"
                print(f"{side.title}: {case.name}: {said}: {one.text}", file=sys.stderr, flush=True)
    return found


def _one(side: Side, name: str, folder: Path) -> Found:
    """Run a scenario in a process of the side's environment."""
    work = folder / name
    work.mkdir()
    out = work / "found.json"
    command = [side.python, HERE / "_child.py", side.module, name, folder / "data", work, out]
    settings = {"STREAMING_CACHE_DIR": str(work / "cache"), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env={**os.environ, **settings, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Found(kept=False, text=f"no end within {_DEADLINE_SECONDS} seconds")
    if not out.exists():
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return Found(kept=False, text=f"ended with status {done.returncode}: {last}")
    kept, text = json.loads(out.read_text(encoding="utf-8"))
    return Found(kept, _short(text, folder))


def _short(text: str, folder: Path) -> str:
    """Return a text without what differs from run to run, and not too long for a table."""
    text = text.replace(str(folder / "data"), "data").replace(str(folder), "scratch")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "…", text)
    text = re.sub(r"\b\d{18,}\b", "…", text)  # what pyiceberg calls a snapshot
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# --- the page -------------------------------------------------------------------------------------


def _markdown(
    chosen: dict[str, list[Case]], sides: list[Side], found: dict[str, dict[str, Found]]
) -> str:
    heads = [f"{side.title} {_version(side)}" for side in sides]
    lines: list[str] = []
    for group, cases in chosen.items():
        if cases:
            lines += [f"### {group}", "", f"| Promise | {' | '.join(heads)} | Test |"]
            lines += [f"|{' --- |' * (len(sides) + 2)}"]
            lines += [_row(case, sides, found) for case in cases] + [""]
    return "\n".join(lines)


def _row(case: Case, sides: list[Side], found: dict[str, dict[str, Found]]) -> str:
    cells = [_cell(found[side.module].get(case.name)) for side in sides]
    path, _, test = case.test.partition("::")
    return f"| {case.promise} | {' | '.join(cells)} | `{Path(path).name}::{test}` |"


def _cell(found: Found | None) -> str:
    if found is None:
        return "not asked"
    text = found.text.replace("|", "\\|").replace("<", "&lt;")
    return f"{'yes' if found.kept else '**no**'}: {text}"


def _version(side: Side) -> str:
    code = f"import importlib.metadata as m; print(m.version({side.distribution!r}))"
    done = subprocess.run([side.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _publish(text: str) -> None:
    page = _PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    _PAGE.write_text(f"{head}{_BEGIN}\n{text}\n{_END}{tail}", encoding="utf-8")


# --- the command ----------------------------------------------------------------------------------


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", help=f"patterns; there are {_all_names()}")
    parser.add_argument(
        "--sides",
        action="append",
        choices=[side.module for side in SIDES],
        help="only these, such as --sides ours",
    )
    parser.add_argument(
        "--publish", action="store_true", help=f"write the tables into {_PAGE.name}"
    )
    return parser.parse_args(argv)


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _all_names() -> str:
    return ", ".join(case.name for cases in GROUPS.values() for case in cases)


if __name__ == "__main__":
    sys.exit(main())
