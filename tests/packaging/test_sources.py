"""House rules that no linter holds: size of files, `__all__`, and extras that exist."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

MAX_LINES = 400
ROOT = Path(__file__).parents[2]


@cache
def _parsed(path: Path) -> ast.Module:
    """Return the tree of a file, parsed once for all tests."""
    return ast.parse(path.read_bytes())


class Need(NamedTuple):
    """One place in the sources that names an extra."""

    where: str
    extra: str | None


def _rows(tree: ast.Module) -> dict[str, int]:
    """Return the classes that have a field `extra` (rows of tables), with its position in them."""
    rows: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            names = [field.id for field in fields if isinstance(field, ast.Name)]
            if "extra" in names:
                rows[node.name] = names.index("extra")
    return rows


def _takes_require(tree: ast.Module) -> bool:
    """Return whether the module's `require` is the one of `_extras`."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "streaming_core._extras"
        and any(alias.name == "require" and alias.asname is None for alias in node.names)
        for node in ast.walk(tree)
    )


def _literal(call: ast.Call, position: int | None) -> str | None:
    """Return the literal that a call gives as `extra`, by keyword or at `position`."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    if position is not None and len(call.args) > position:
        values.append(call.args[position])
    literal = values[0].value if values and isinstance(values[0], ast.Constant) else None
    return literal if isinstance(literal, str) else None


def _needs(path: Path) -> list[Need]:
    """Return where one file names an extra: in calls of `require` and in rows of tables.

    `extra` is None where it is no literal; in a module with rows `require` may take it from one.
    """
    tree = _parsed(path)
    if not _takes_require(tree):
        return []
    rows = _rows(tree)
    found: list[Need] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name = node.func.id
        if name == "require" or name in rows:
            extra = _literal(node, rows.get(name))
            if extra is not None or name in rows or not rows:
                found.append(Need(f"{path.relative_to(ROOT)}:{node.lineno}", extra))
    return found


def _imports_otherwise(path: Path) -> bool:
    """Return whether a file gets at `_extras` in a way that `_takes_require` does not see."""
    tree = _parsed(path)
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for name in (alias.name, f"{getattr(node, 'module', None)}.{alias.name}")
    }
    whole = "streaming_core._extras" in modules
    return whole or ("streaming_core._extras.require" in modules and not _takes_require(tree))


def test_require_is_imported_in_the_way_that_is_checked(sources: list[Path]) -> None:
    """Whoever uses `_extras` imports `require` by its name, where the test of extras looks."""
    assert not [path for path in sources if _imports_otherwise(path)]


def _assigns_all(path: Path) -> bool:
    """Return whether the module's top level assigns `__all__`."""
    for node in _parsed(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return True
    return False


def test_every_extra_named_to_users_exists(root: Path, sources: list[Path]) -> None:
    """The `pip install` command that an error suggests works, for every extra in the sources."""
    with (root / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    needs = [need for path in sources for need in _needs(path)]
    unreadable = [need.where for need in needs if need.extra is None]
    assert not unreadable, "`extra` must be a literal, so that this test can check it"
    assert needs
    assert not [need for need in needs if need.extra not in extras]


def test_every_extra_is_part_of_all_or_of_development(root: Path) -> None:
    """`all` brings each extra that users may need, so none can be forgotten in it."""
    with (root / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    listed = {
        name
        for line in extras["all"]
        for name in line.partition("[")[2].partition("]")[0].split(",")
    }
    assert listed == set(extras) - {"all", "dev", "docs", "test"}


def test_every_module_says_what_it_offers(sources: list[Path]) -> None:
    """Each module has `__all__`, private ones included."""
    assert not [path for path in sources if not _assigns_all(path)]


def test_no_file_outgrows_a_reader(sources: list[Path]) -> None:
    """A file of a package has at most 400 lines."""
    sizes = {path: len(path.read_bytes().splitlines()) for path in sources}
    assert not {path: size for path, size in sizes.items() if size > MAX_LINES}


def test_no_file_has_a_branch_for_windows(sources: list[Path]) -> None:
    """As it is not supported; what such a branch promised nobody has ever tried."""
    words = ("win32", '"nt"', "msvcrt", "O_BINARY", "Windows")
    found = {f"{p}: {word}" for p in sources for word in words if word in p.read_text("utf-8")}
    assert not found
