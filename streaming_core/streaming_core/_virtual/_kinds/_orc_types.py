"""The types in an ORC file's footer: checked, as libraries trust them. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from streaming_core._virtual._kinds._orc_bytes import every, fields, numbers

__all__ = ["columns_of", "row_bytes"]

_TYPES_MOST: Final = 1 << 20
_SIZE_MOST: Final = 1 << 50
_DEPTH_MOST: Final = 64
_LIST, _MAP, _STRUCT, _UNION, _DECIMAL = 10, 11, 12, 13, 14
_KINDS: Final = 18
_DIGITS_MOST: Final = 38
_BRANCHES_MOST: Final = 127
_WIDTHS: Final = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 4, 6: 8, 9: 8, 14: 16, 15: 4, 18: 8}
"""Decoded bytes of one value by kind of type; of texts their lengths come on top."""
_TEXT_WIDTH: Final = 8
_TEXT_KINDS: Final = frozenset({7, 8, 16, 17})


class _Type(NamedTuple):
    """One type of the tree."""

    kind: int
    children: list[int]
    names: list[str]
    digits: int
    scale: int


def columns_of(types: list[bytes]) -> tuple[tuple[int, int], ...]:
    """Return where the types of each column begin and end.

    Types are numbered depth first, and the first is the struct of all columns.

    Raises `ValueError` if they are no tree, or one of them cannot be.
    """
    if not 0 < len(types) <= _TYPES_MOST:
        msg = f"{len(types)} types"
        raise ValueError(msg)
    tree = [_type(content) for content in types]
    if tree[0].kind != _STRUCT:
        msg = f"its rows are of type {tree[0].kind}, not structs"
        raise ValueError(msg)
    columns: list[tuple[int, int]] = []
    at = 1
    for child in tree[0].children:
        end = _end(tree, child, at, 1)
        columns.append((at, end))
        at = end
    if at != len(tree):
        msg = f"{len(tree)} types of which {at} belong to columns"
        raise ValueError(msg)
    return tuple(columns)


def _type(content: bytes) -> _Type:
    said = numbers(content)
    children: list[int] = []
    names: list[str] = []
    for number, value, text, _ in fields(content):
        if number == 2:  # noqa: PLR2004 - types below this one
            children += every(value, text)
        elif number == 3:  # noqa: PLR2004 - their names
            names.append(text.decode())
    found = _Type(said.get(1, 0), children, names, said.get(5, 0), said.get(6, 0))
    wanted = {_LIST: 1, _MAP: 2, _STRUCT: len(names)}.get(found.kind, 0)
    if found.kind == _UNION and 0 < len(children) <= _BRANCHES_MOST:
        wanted = len(children)
    if found.kind > _KINDS or len(children) != wanted:
        msg = f"a type of kind {found.kind} with {len(children)} below it"
        raise ValueError(msg)
    # Decimals of the first files name no digits.
    if found.kind == _DECIMAL and not found.scale <= (found.digits or _DIGITS_MOST) <= _DIGITS_MOST:
        msg = f"decimals of {found.digits} digits, {found.scale} of them behind the point"
        raise ValueError(msg)
    return found


def _end(tree: list[_Type], at: int, wanted: int, deep: int) -> int:
    """Return which type comes behind the one at `at` and all below it."""
    if at != wanted or at >= len(tree) or deep > _DEPTH_MOST:
        msg = f"type {at} of {len(tree)} where {wanted} was expected, {deep} deep"
        raise ValueError(msg)
    end = at + 1
    for child in tree[at].children:
        end = _end(tree, child, end, deep + 1)
    return end


def row_bytes(types: list[bytes], statistics: list[bytes], rows: int) -> float:
    """Return about how many bytes a row takes once it is decoded; 0 if nothing tells."""
    if len(statistics) != len(types) or not rows:
        return 0.0
    total = 0
    for content, said in zip(types, statistics, strict=True):
        kind = numbers(content).get(1, 0)
        is_text = kind in _TEXT_KINDS
        values = numbers(said).get(1, 0)
        total += values * (_TEXT_WIDTH if is_text else _WIDTHS.get(kind, _TEXT_WIDTH))
        for number, _, inner, _ in fields(said):
            # The sum of all lengths, of texts and of bytes, written with its sign in the last bit.
            if number in {4, 8} and is_text:
                total += numbers(inner).get(3 if number == 4 else 1, 0) >> 1  # noqa: PLR2004 - texts
    return min(total, _SIZE_MOST) / rows
