"""Shard files by their names: which number has which, and what is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming_core.cli._check import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Found", "find_shards", "number_gaps", "show_numbers"]

_NAME: Final = re.compile(
    r"shard\.(\d{5,})\.(mds|json|xsv|csv|tsv)(\.meta)?(?:\.(br|bz2|gz|snappy|zstd))?"
)


@dataclass(slots=True)
class Found:
    """The files of one shard number, by the code of their compression ("" for none)."""

    number: int
    """The number in their names."""
    format: str
    """The format in their names."""
    data: dict[str, str] = field(default_factory=dict[str, str])
    """Data files."""
    meta: dict[str, str] = field(default_factory=dict[str, str])
    """Meta files."""


def find_shards(keys: Iterable[str]) -> tuple[list[Found], list[Finding]]:
    """Return the shards whose files are among `keys` in order of their numbers, and what is wrong.

    Example:
        >>> found, problems = find_shards(["shard.00001.mds.gz", "shard.00000.mds.gz", "notes"])
        >>> [shard.data for shard in found], problems
        ([{'gz': 'shard.00000.mds.gz'}, {'gz': 'shard.00001.mds.gz'}], [])
    """
    shards: dict[int, Found] = {}
    problems: list[Finding] = []
    for key in sorted(keys):
        match = _NAME.fullmatch(key)
        if match is None or f"{int(match[1]):05d}" != match[1]:
            continue
        shard = shards.setdefault(int(match[1]), Found(int(match[1]), match[2]))
        if shard.format != match[2]:
            text = f"shard {shard.number} has files of the formats {shard.format} and {match[2]}"
            problems.append(Finding("format", text, file=key))
            continue
        (shard.meta if match[3] else shard.data)[match[4] or ""] = key
    for shard in shards.values():
        if not shard.data:
            text = "the shard has a meta file, but no data file"
            problems.append(Finding("missing", text, file=next(iter(shard.meta.values()))))
        elif shard.format != "mds" and not shard.meta:
            text = "the shard has a data file, but no meta file"
            problems.append(Finding("missing", text, file=next(iter(shard.data.values()))))
    return [shards[number] for number in sorted(shards)], problems


def number_gaps(numbers: Iterable[int]) -> list[int]:
    """Return the numbers from 0 on that are missing below the largest one.

    Example:
        >>> number_gaps([1, 2, 5])
        [0, 3, 4]
    """
    have = set(numbers)
    return [number for number in range(max(have, default=-1)) if number not in have]


def show_numbers(numbers: Iterable[int]) -> str:
    """Return ascending numbers as people list them.

    Example:
        >>> show_numbers([0, 3, 4, 5, 9])
        '0, 3-5, 9'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
