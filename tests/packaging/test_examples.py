"""What README and documentation show, runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Indented fences (in tabs and notes) count as well.
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)


def _script(page: Path) -> str:
    """Return the page's python blocks as one program, each on the lines where it stands."""
    text = page.read_text(encoding="utf-8")
    lines: list[str] = []
    for block in FENCE.finditer(text):
        words = block["info"].split()
        if words[:1] != ["python"]:
            continue
        start = text.count("\n", 0, block.start("body"))
        lines += [""] * (start - len(lines))
        lines += [line.removeprefix(block["indent"]) for line in block["body"].splitlines()]
    return "\n".join(lines)


SCRIPTS = {
    page.relative_to(ROOT).as_posix(): script
    for page in PAGES
    if page.is_file() and (script := _script(page))
}


def test_the_pages_were_found() -> None:
    """The search for blocks finds the tutorial, which has some."""
    assert "docs/tutorials/first-dataset.md" in SCRIPTS


# Pages that start quickly: they neither train nor start processes of their own.
_SLOW = re.compile(r"torch|DataLoader|StreamingDataset|create_dataloader|multiprocessing|Executor")
CASES = [
    pytest.param(page, marks=() if _SLOW.search(script) else pytest.mark.essential)
    for page, script in sorted(SCRIPTS.items())
]


@pytest.mark.process
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", CASES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    """The blocks of a page are one program, which runs in an empty folder without an error."""
    script = tmp_path / "page" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPTS[page], encoding="utf-8")
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={**os.environ, "STREAMING_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page} (line numbers are the page's)\n{done.stderr}"
