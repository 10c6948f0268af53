"""Relative names (basenames in an index, keys in a store) that cannot leave their directory."""

from __future__ import annotations

import re

__all__ = ["MAX_NAME_BYTES", "name_problem"]

MAX_NAME_BYTES = 1024
_MAX_PART_BYTES = 255
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def name_problem(name: str) -> str | None:
    """Return why `name` is not a safe relative name, or None if it is one.

    Safe means: relative, `/` as the only separator, no empty, `.` or `..` part, no backslash, no
    drive letter, no control character, and short enough for every file system.

    Example:
        >>> name_problem("part-0/shard.00000.mds") is None, name_problem("../x")
        (True, "it has a '..' part")
    """
    if not name:
        return "it is empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > MAX_NAME_BYTES:
        return f"it is {size} bytes long, more than {MAX_NAME_BYTES}"
    if _CONTROLS.search(name):
        return "it has a control character"
    if "\\" in name:
        return "it has a backslash"
    if name.startswith("/"):
        return "it is absolute"
    if len(name) > 1 and name[1] == ":" and name[0].isalpha():
        return "it starts with a drive letter"
    for part in name.split("/"):
        if part in {"", ".", ".."}:
            return f"it has a {part!r} part" if part else "it has an empty part"
        if len(part.encode()) > _MAX_PART_BYTES:
            return f"it has a part of more than {_MAX_PART_BYTES} bytes"
    return None
