"""What lies in the folders of a server, and what dead writers left there."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming_core._store._sftp._packets import Kind, Status, StatusError, text
from streaming_core._store._temp import is_temp, owner_is_gone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_core._store._sftp._packets import Attributes
    from streaming_core._store._sftp._session import Session

__all__ = ["entries", "is_litter", "sweep"]

_FORGOTTEN_SECONDS: Final = 24 * 3600
"""A file in the making that nobody wrote to for so long is nobody's, whatever machine made it."""


def entries(session: Session, folder: bytes) -> list[tuple[bytes, Attributes]]:
    """Return what is in a folder, links followed but those to folders; nothing if there is none."""
    try:
        found = list(session.entries(folder or b"/"))
    except StatusError as error:
        if error.code == Status.MISSING:
            return []
        if error.code == Status.FAILURE:  # as some servers say of files
            there = session.stat(folder)
            if there is None or not there.is_folder:
                return []
        raise
    links = {
        name: session.ask(Kind.STAT, text(folder + b"/" + name))
        for name, attributes in found
        if attributes.is_link
    }
    ends: dict[bytes, Attributes] = {}
    for name, asked in links.items():
        with suppress(StatusError):  # it leads nowhere
            ends[name] = session.attributes(asked)
    return [
        (name, ends.get(name, attributes))
        for name, attributes in found
        if name not in links or (name in ends and ends[name].is_file)
    ]


def is_litter(name: str, modified: int | None, now: float) -> bool:
    """Tell whether a file in the making has nobody who makes it.

    Example:
        >>> is_litter(".a.12-0123456789abcdef0123.tmp", 0, 1_000_000.0), is_litter("a", 0, 1e6)
        (True, False)
    """
    if not is_temp(name):
        return False
    return owner_is_gone(name) or (modified is not None and now - modified > _FORGOTTEN_SECONDS)


def sweep(session: Session, folder: bytes, found: Iterable[tuple[bytes, Attributes]]) -> None:
    """Remove what dead writers left, as far as the server lets us."""
    now = time.time()
    asked = [
        session.ask(Kind.REMOVE, text(folder + b"/" + name))
        for name, attributes in found
        if is_litter(name.decode(errors="replace"), attributes.modified, now)
    ]
    for number in asked:
        with suppress(StatusError):
            session.done(number)
