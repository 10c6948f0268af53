"""The comparison with other loaders is whole: each promise is asked of us, and held by a test."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_SCENARIOS = _ROOT / "benchmarks" / "defects"
_PAGE = _ROOT / "docs" / "comparison-any-format.md"


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def _cases() -> list[tuple[str, str, str]]:
    """Return name, promise and test of all cases, which the table's file says as literals."""
    tree = ast.parse((_SCENARIOS / "_cases.py").read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        name, promise, test = (eval(ast.unparse(one), constants) for one in call.args)  # noqa: S307 - our own literals
        found.append((name, promise, test))
    return found


_CASES = _cases()


def test_every_scenario_of_a_peer_is_one_of_ours() -> None:
    """And none is left out of the table."""
    names = [name for name, _, _ in _CASES]
    assert len(set(names)) == len(names) > 50
    assert set(names) <= _functions(_SCENARIOS / "ours.py")
    asked: set[str] = set()
    for peer in ("peer_tdu.py", "peer_easydata.py"):
        found = {name for name in _functions(_SCENARIOS / peer) if not name.startswith("_")}
        asked |= {name for name in found if not name.endswith("_rank")}
    assert asked == set(names)


def test_each_promise_has_a_test_and_a_line() -> None:
    """The test that is named is there, and the page says how the promise is kept."""
    lines = _PAGE.read_text().splitlines()
    failing: dict[str, str] = {}
    for name, promise, test in _CASES:
        path, _, function = test.partition("::")
        line = next((one for one in lines if one.startswith(f"| {promise} |")), "")
        if function not in _functions(_ROOT / "tests" / path):
            failing[name] = f"{test}: no such test"
        elif f"::{function}`" not in line:
            failing[name] = f"the line does not name {function}: {line}"
        elif not line.split(" | ")[-2].startswith("yes: "):
            failing[name] = f"the line does not say how it is kept: {line}"
    assert not failing


@pytest.mark.bench
@pytest.mark.timeout(1200)
def test_the_command_asks_us() -> None:
    """It exits with 0 if all that was asked is kept."""
    command = [sys.executable, str(_SCENARIOS / "run.py"), "--sides", "ours"]
    done = subprocess.run(
        [*command, "resume_in_process", "deleted_*"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("yes: ") == 2
    unknown = subprocess.run([*command, "no-such"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "no scenario is called no-such" in unknown.stdout
