"""What names of files say: patterns that they match, what is hidden, columns in folders. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAGIC",
    "hive_constants",
    "is_hidden",
    "listed_names",
    "names_pattern",
    "pattern_regex",
]

MAGIC: Final = re.compile(r"[*?\[{]")
"""Where a text is a pattern."""
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def pattern_regex(pattern: str) -> re.Pattern[str]:
    """Return what matches the names that a pattern means; `*` stays within a folder, `**` not.

    Example:
        >>> matches = pattern_regex("**/*.{csv,tsv}").fullmatch
        >>> bool(matches("a/b/c.tsv")), bool(matches("c.csv")), bool(matches("c.json"))
        (True, True, False)
    """
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out, at = out + "(?:[^/]+/)*", at + 3
            continue
        if pattern.startswith("**", at):
            out, at = out + ".*", at + 2
            continue
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", "\\\\")
            inner = f"^{inner[1:]}" if inner.startswith("!") else inner.replace("[", "\\[")
            out, at = f"{out}[{inner}]", end
        elif char == "{" and (end := pattern.find("}", at)) > 0:
            each = pattern[at + 1 : end].split(",")
            out, at = out + "(?:" + "|".join(pattern_regex(one).pattern for one in each) + ")", end
        else:
            out += re.escape(char)
        at += 1
    return re.compile(out)


def names_pattern(remotes: Sequence[str]) -> str:
    """Return the pattern that means exactly some files, wherever they lie below one folder.

    Raises `SchemaError` if they lie below none, or a name cannot be in a pattern.

    Example:
        >>> names_pattern(["s3://b/x/1.csv", "s3://b/x/y/2.csv"])
        's3://b/x/{1.csv,y/2.csv}'
    """
    split = [remote.split("/") for remote in remotes]
    shared = 0
    while all(shared < len(one) - 1 and one[shared] == split[0][shared] for one in split):
        shared += 1
    root = "/".join(split[0][:shared])
    names = ["/".join(one[shared:]) for one in split]
    bad = next((name for name in names if MAGIC.search(name) or "," in name or "}" in name), None)
    if not remotes or not root or root.endswith(":/") or bad is not None:
        why = f"{bad!r} has characters of a pattern" if bad else "they lie below no one folder"
        msg = f"a list of files cannot be read: {why}; read them as several streams"
        raise SchemaError(msg)
    return f"{root}/{{{','.join(names)}}}"


def listed_names(pattern: str) -> list[str] | None:
    """Return the names in a pattern that has nothing else.

    Example:
        >>> listed_names("{1.csv,y/2.csv}"), listed_names("{a,b}*")
        (['1.csv', 'y/2.csv'], None)
    """
    if not (pattern.startswith("{") and pattern.endswith("}")) or MAGIC.search(pattern[1:]):
        return None
    return pattern[1:-1].split(",")


def is_hidden(key: str) -> bool:
    """Tell whether a file is none of the data: what begins with `_` or `.` is for tools.

    Example:
        >>> is_hidden("a/_SUCCESS"), is_hidden("_x=1/a.parquet"), is_hidden(".git/a.parquet")
        (True, False, True)
    """
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in key.split("/")
    )


def hive_constants(key: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns in the folders of a name.

    Example:
        >>> hive_constants("year=2024/lang=de%2Fat/a.parquet")
        (('year', '2024'), ('lang', 'de/at'))
    """
    pairs = (part.partition("=") for part in key.split("/")[:-1])
    return tuple(
        (name, None if value == _HIVE_NULL else unquote(value))
        for name, mark, value in pairs
        if mark and name
    )
