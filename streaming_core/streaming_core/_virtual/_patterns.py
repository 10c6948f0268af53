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
    "literal_lead",
    "names_pattern",
    "pattern_regex",
    "quoted",
]

MAGIC: Final = re.compile(r"[*?\[{]")
"""Where a text is a pattern."""
_SPECIAL: Final = re.compile(r"([*?\[{},])")
_QUOTED: Final = re.compile(r"\[([*?\[{},])\]")
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
            out, at = out + r"[\s\S]*", at + 2
            continue
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", "\\\\")
            inner = f"^{inner[1:]}" if inner.startswith("!") else inner.replace("[", "\\[")
            out, at = f"{out}[{inner}]", end
        elif char == "{" and (each := _alternatives(pattern, at)):
            out += "(?:" + "|".join(pattern_regex(one).pattern for one in each) + ")"
            at += sum(map(len, each)) + len(each)
        else:
            out += re.escape(char)
        at += 1
    return re.compile(out)


def _alternatives(pattern: str, at: int) -> list[str]:
    """Return what stands between commas in the brace at a place; nothing if it does not end."""
    each, begin = [""], at + 1
    while begin < len(pattern):
        quoted_one = _QUOTED.match(pattern, begin)
        if quoted_one:
            each[-1] += quoted_one[0]
            begin = quoted_one.end()
            continue
        char = pattern[begin]
        if char == "}":
            return each
        if char == ",":
            each.append("")
        else:
            each[-1] += char
        begin += 1
    return []


def quoted(name: str) -> str:
    """Return the pattern that means just one name, whatever is in it.

    Example:
        >>> quoted("a[1].csv"), quoted("b.csv")
        ('a[[]1].csv', 'b.csv')
    """
    return _SPECIAL.sub(r"[\1]", name)


def names_pattern(remotes: Sequence[str]) -> str:
    """Return the pattern that means exactly some files, wherever they lie below one folder.

    Raises `SchemaError` if they lie below none, or are URLs with a query.

    Example:
        >>> names_pattern(["s3://b/x/1.csv", "s3://b/x/y/2.csv"])
        's3://b/x/{1.csv,y/2.csv}'
    """
    if not remotes:
        msg = "an empty list of files; give at least one"
        raise SchemaError(msg)
    split = [remote.split("/") for remote in remotes]
    is_url = "://" in remotes[0]
    shared = 0
    while all(shared < len(one) - 1 and one[shared] == split[0][shared] for one in split):
        if is_url and MAGIC.search(split[0][shared]):
            break  # only of folders here it is seen that they are no patterns
        shared += 1
    root = "/".join(split[0][:shared])
    if not shared and not any("://" in one or one.startswith("/") for one in remotes):
        root = "."  # of files in the folder we are in
    names = ["/".join(one[shared:]) for one in split]
    why = ""
    if not root or root.endswith(":/"):
        why = "they lie below no one folder"
    elif is_url:
        asking = next((name for name in names if "?" in name and "=" in name), None)
        why = f"{asking.partition('?')[0]!r} has a query" if asking else ""
    if why:
        msg = f"a list of files cannot be read: {why}; read them as several streams"
        raise SchemaError(msg)
    return f"{root}/{{{','.join(map(quoted, names))}}}"


def listed_names(pattern: str) -> list[str] | None:
    """Return the names in a pattern that has nothing else.

    Example:
        >>> listed_names("{1.csv,y/[[]2].csv}"), listed_names("{a,b}*")
        (['1.csv', 'y/[2].csv'], None)
    """
    if not pattern.startswith("{"):
        return None
    each = _alternatives(pattern, 0)
    if sum(map(len, each)) + len(each) + 1 != len(pattern):
        return None
    found = [literal_lead(one) for one in each]
    return [name for name, _ in found] if all(is_all for _, is_all in found) else None


def literal_lead(pattern: str) -> tuple[str, bool]:
    """Return the text that all names begin with, and whether it is all of them.

    Example:
        >>> literal_lead("part-[*]-*.csv"), literal_lead("a[?].csv")
        (('part-*-', False), ('a?.csv', True))
    """
    lead, at = "", 0
    while at < len(pattern):
        escaped = _QUOTED.match(pattern, at)
        if escaped:
            lead, at = lead + escaped[1], escaped.end()
        elif MAGIC.match(pattern, at):
            return lead, False
        else:
            lead, at = lead + pattern[at], at + 1
    return lead, True


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
