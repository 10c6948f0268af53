"""Rows and samples of the fixtures, and their digests.

Fixtures that are kept for good depend on these functions: add others beside them, change none.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["digest", "file_digests", "large", "plain", "sample", "samples"]

if TYPE_CHECKING:
    from pathlib import Path


def sample(number: int) -> dict[str, Any]:
    """Return a sample of the MDS, JSON, and CSV datasets."""
    text = " ".join(str(number * factor) for factor in range(1, 40))
    return {"id": number, "text": f"sample {number}: {text}"}


def large(number: int) -> dict[str, Any]:
    """Return a sample of half a megabyte, of which shards are fetched in several pieces."""
    return {"id": number, "text": f"sample {number:06d} " * 40_000}


def samples(start: int, stop: int) -> list[dict[str, Any]]:
    """Return some samples."""
    return [sample(number) for number in range(start, stop)]


def plain(value: Any) -> Any:
    """Return a value as JSON has it, with the type where JSON has none."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return {"scalar": value.item(), "dtype": str(value.dtype)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {type(value).__name__: str(value)}


def digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the hash of some rows, which depends on their order and on that of no columns."""
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps(plain(row), sort_keys=True).encode())
    return found.hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """Return the hash of each file below a folder, by its name in there."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
