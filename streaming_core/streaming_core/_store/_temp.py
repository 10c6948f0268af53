"""Names of files that are still being written, and whether their writer is alive."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH116

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
from functools import lru_cache

__all__ = ["is_temp", "owner_is_gone", "temp_name"]

_MAX_NAME_BYTES = 255
_TEMP = re.compile(r"\..+\.([1-9]\d{0,9})-([0-9a-f]{8})[0-9a-f]{12}\.tmp", re.DOTALL)


def temp_name(basename: str) -> str:
    """Return a new name `.{basename}.{pid}-{random}.tmp`, cut to what file systems take.

    The first eight digits of `random` name the machine: process ids mean nothing on another one.

    Example:
        >>> is_temp(temp_name("shard.00000.mds"))
        True
    """
    tail = f".{os.getpid()}-{_machine_tag()}{secrets.token_hex(6)}.tmp"
    room = _MAX_NAME_BYTES - len(tail) - 1
    return "." + basename.encode()[:room].decode(errors="ignore") + tail


def is_temp(basename: str) -> bool:
    """Tell whether `basename` has the form that `temp_name` gives.

    Example:
        >>> is_temp("notes.tmp")
        False
    """
    return _TEMP.fullmatch(basename) is not None


def owner_is_gone(basename: str) -> bool:
    """Tell whether `basename` is a temporary file whose process ran on this machine and is dead.

    In doubt the answer is no: files of other machines, and of a process id in use again, stay.

    Example:
        >>> owner_is_gone(temp_name("a"))
        False
    """
    match = _TEMP.fullmatch(basename)
    return match is not None and match[2] == _machine_tag() and not _is_alive(int(match[1]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's, but alive
        return True
    return True


@lru_cache(maxsize=1)
def _machine_tag() -> str:
    """Return eight hexadecimal digits for this machine and space of process ids."""
    try:
        # Containers may share a host name, but not the numbers of their processes.
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return hashlib.blake2b(f"{platform.node()}|{space}".encode(), digest_size=4).hexdigest()
