"""Typed decoders are made when their module is loaded, never where they are used.

msgspec looks at a struct when it is first decoded. If several threads do that at once, the process
ends with a segmentation fault. Modules are loaded by one thread, so a decoder that is made there is
safe.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = {"dict", "list", "tuple", "str", "int", "bytes", "None", "Raw", "msgspec", "Any"}
"""Names in types that msgspec does not have to look at."""


def _is_plain(kind: ast.expr) -> bool:
    return all(node.id in PLAIN for node in ast.walk(kind) if isinstance(node, ast.Name))


def late_decoders(tree: ast.Module) -> list[int]:
    """Return the lines at which a struct may be decoded for the first time in a thread."""
    found: list[int] = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                name, where = call.func.attr, ast.unparse(call.func)
                kinds = [word.value for word in call.keywords if word.arg == "type"]
                if where.startswith("msgspec.") and name == "Decoder":
                    kinds += call.args
                if name in {"decode", "Decoder"} and not all(map(_is_plain, kinds)):
                    found.append(call.lineno)
    return found


def test_no_struct_is_decoded_for_the_first_time_in_a_thread() -> None:
    """In all modules of the packages."""
    found = {
        str(path.relative_to(ROOT)): lines
        for package in ("streaming_core", "writer", "reader")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := late_decoders(ast.parse(path.read_bytes())))
    }
    assert not found


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("FORM = msgspec.json.Decoder(Page)\ndef f(x): return FORM.decode(x)", 0),
        ("def f(x): return msgspec.json.decode(x, type=dict[str, msgspec.Raw])", 0),
        ("def f(x): return msgspec.json.Decoder(list[str]).decode(x)", 0),
        ("def f(x): return msgspec.json.decode(x, type=list[Page])", 1),
        ("def f(x): return msgspec.msgpack.Decoder(Page).decode(x)", 1),
    ],
)
def test_late_decoders_are_found(code: str, count: int) -> None:
    """Those of structs."""
    assert len(late_decoders(ast.parse(code))) == count
