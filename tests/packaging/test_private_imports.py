"""Tests use the interface of a package, not its files. The list of exceptions can only shrink."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = Path(__file__).with_name("private_imports.txt")
HOMES = {
    "streaming_core": "streaming_core",
    "streaming_writer": "writer",
    "streaming_reader": "reader",
}


def _is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in HOMES


def _is_file_of_a_package(module: str) -> bool:
    """Return whether a dotted name is a file inside one of the packages' own packages."""
    parts = module.split(".")
    if not _is_ours(module) or len(parts) < 3:
        return False
    return ROOT.joinpath(HOMES[parts[0]], *parts).with_suffix(".py").is_file()


def _is_private_name(module: str, name: str) -> bool:
    """Return whether a module of ours keeps this name to itself."""
    parts = module.split(".")
    path = ROOT.joinpath(HOMES[parts[0]], *parts, name)
    is_module = path.is_dir() or path.with_suffix(".py").is_file()
    return name.startswith("_") and not name.startswith("__") and not is_module


def private_imports(path: Path) -> set[str]:
    """Return what a test file imports from behind the `__init__` of a package."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if _is_file_of_a_package(each.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            if _is_file_of_a_package(node.module):
                found.add(node.module)
            for each in node.names:
                full = f"{node.module}.{each.name}"
                if _is_file_of_a_package(full) or _is_private_name(node.module, each.name):
                    found.add(full)
    return found


def test_no_further_file_imports_private_modules() -> None:
    """A test file imports what a package's `__init__` offers, unless it is on the list."""
    allowed = set(ALLOWED.read_text().split())
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (names := private_imports(path))
    }
    new = {path: sorted(names) for path, names in found.items() if path not in allowed}
    assert not new, f"import from the packages' `__init__` instead: {new}"
    gone = sorted(allowed - set(found))
    assert not gone, f"these no longer import private modules: take them off {ALLOWED.name}: {gone}"


def test_imports_from_behind_a_package_are_seen(tmp_path: Path) -> None:
    """The rule sees files of packages and private names, and accepts packages' interfaces."""
    source = tmp_path / "test_source.py"
    lines = [
        "import streaming_core._store._policy",
        "from streaming_core._store import _options, open_store",
        "from streaming_core._index._parse import parse_index",
        "from streaming_core import MDSWriter, errors",
        "from streaming_core.errors import StreamingError, _hidden",
    ]
    source.write_text("\n".join(lines))
    assert private_imports(source) == {
        "streaming_core._store._policy",
        "streaming_core._store._options",
        "streaming_core._index._parse",
        "streaming_core.errors._hidden",
    }
