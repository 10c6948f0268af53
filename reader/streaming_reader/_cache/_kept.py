"""What lies in cache folders: how much, last used when, and removing what nobody uses."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH106, PTH108, PTH114, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from streaming_core._index import INDEX_NAME, load_index
from streaming_core._read import SUMS
from streaming_core.errors import StreamingError
from streaming_reader._cache._locks import is_free
from streaming_reader._cache._places import CONTROL, SOURCE, Places, file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Kept", "kept_below", "remove_kept", "tidy"]

_log = logging.getLogger("streaming_core.reader")
What: TypeAlias = Literal["decoded", "shards", "index"]
_VIEW: Final = re.compile(r"[a-z]+-[0-9a-f]{16}")
"""Names of folders of decoded data."""
_UNIT: Final = re.compile(r"[0-9a-f]{24}\.\d{7}(-[0-9a-f]{16})?\.arrow")
"""Names of files in these."""
_ORDERS: Final = f"{CONTROL}/orders"
_CONTROLS: Final = (CONTROL, f"{CONTROL}/parts", _ORDERS)
"""Folders of what is no data."""
_TIDIED: Final = "tidied"
_DEEPEST: Final = 4
_RECORD_BYTES: Final = 1 << 16
_DAY: Final = 86_400.0
_UNUSED_SECONDS: Final = 30 * _DAY


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of a cache that belong together."""

    folder: str
    what: What
    """Decoded data of other formats; shards of a remote; or the index of such data, with the
    orders of its epochs."""
    sources: tuple[str, ...]
    """What it was made of, without secrets."""
    files: tuple[str, ...]
    """Their names below the folder. Whatever else lies there is none of ours."""
    num_bytes: int
    last_used: float
    """When it was last used, or written, of `time.time`."""
    in_use: bool
    """Whether a process that lives has one of the files mapped, or is making one."""


def kept_below(root: str) -> list[Kept]:
    """Return all that caches keep in `root` and below it, what lies deepest first.

    Data that is read in place is none of it.
    """
    return list(_walked(root, (), 0))


def remove_kept(kept: Kept) -> int:
    """Remove the files that no process has in use; return how many bytes these were.

    A reader that comes back to them makes or fetches them again.
    """
    freed = 0
    for name in kept.files:
        path = os.path.join(kept.folder, name)
        stamp = file_stamp(path)
        with suppress(OSError):
            if stamp is not None and is_free(path):
                os.unlink(path)
                freed += stamp.size
    inner = {os.path.dirname(name) for name in kept.files} | {*_CONTROLS, ""}
    for name in sorted(inner, key=len, reverse=True):
        with suppress(OSError):
            os.rmdir(os.path.join(kept.folder, name))
    return freed


def tidy(view: str, names: Callable[[], Iterable[str]], now: float | None = None) -> None:
    """Remove decoded data that nobody used for a month: views beside `view`, files within it.

    Those within are of versions of the data that are gone; `names` returns the files that are not.
    Looks at most once a day, and never fails.
    """
    now = time.time() if now is None else now
    before = now - _UNUSED_SECONDS
    with suppress(OSError):
        for folder in _views_beside(view):
            ledger = file_stamp(Places(folder).ledger)
            if ledger is None or ledger.changed / 1e9 >= before:
                continue
            kept = _decoded(folder, ())
            if not kept.in_use and kept.last_used < before:
                freed = remove_kept(kept)
                _log.info("removed %s, unused for a month: %d bytes", folder, freed)
    with suppress(OSError):
        if _is_due(view, now):
            _remove_strays(view, names(), before)


def _views_beside(view: str) -> list[str]:
    with os.scandir(os.path.dirname(view)) as entries:
        return [
            entry.path
            for entry in entries
            if entry.path != view
            and _VIEW.fullmatch(entry.name)
            and entry.is_dir(follow_symlinks=False)
        ]


def _is_due(view: str, now: float) -> bool:
    """Tell whether a view was not looked through today; it is from now on."""
    if file_stamp(Places(view).ledger) is None:
        return False
    path = os.path.join(view, CONTROL, _TIDIED)
    last = file_stamp(path)
    if last is not None and 0 <= now - last.changed / 1e9 < _DAY:
        return False
    with open(path, "wb"):
        pass
    os.utime(path, (now, now))
    return last is not None  # what was just made has nothing old


def _remove_strays(view: str, names: Iterable[str], before: float) -> None:
    known = set(names)
    strays = [name for name in _units(view) if name not in known]
    for name in strays:
        path = os.path.join(view, name)
        stamp = file_stamp(path)
        if stamp is not None and stamp.changed / 1e9 < before and is_free(path):
            os.unlink(path)


# --- what there is --------------------------------------------------------------------------------


def _walked(folder: str, above: tuple[str, ...], depth: int) -> Iterator[Kept]:
    """Yield what lies in a folder and below it; `above` says what the folder's files are of."""
    try:
        with os.scandir(folder) as entries:
            inner = sorted(
                entry.name
                for entry in entries
                if entry.name != CONTROL and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return
    sources = _sources(folder)
    own = _own(folder, above)
    below: list[Kept] = []
    if depth < _DEEPEST and (own is None or own.what == "index"):
        for name in inner:
            found = list(_walked(os.path.join(folder, name), sources, depth + 1))
            below += found
            yield from found
    if own is not None:
        yield _above(own, below)


def _above(own: Kept, below: list[Kept]) -> Kept:
    """Return an index as it is used: with all that was decoded by it."""
    return Kept(
        own.folder,
        own.what,
        own.sources,
        own.files,
        own.num_bytes,
        max([own.last_used, *(kept.last_used for kept in below)]),
        own.in_use or any(kept.in_use for kept in below),
    )


def _own(folder: str, above: tuple[str, ...]) -> Kept | None:
    """Return what the cache keeps in just this folder, None if nothing."""
    places = Places(folder)
    has_ledger = file_stamp(places.ledger) is not None
    if has_ledger and _VIEW.fullmatch(os.path.basename(folder)):
        return _decoded(folder, above)
    control = _control_files(folder)
    if has_ledger and file_stamp(places.source) is not None:
        return _kept(folder, "shards", _sources(folder), [*_shard_files(folder), *control])
    leads = (f"{CONTROL}/{SOURCE}-", f"{_ORDERS}/")
    ours = [name for name in control if name.startswith(leads)]
    return _kept(folder, "index", _sources(folder), ours) if ours else None


def _decoded(folder: str, sources: tuple[str, ...]) -> Kept:
    return _kept(folder, "decoded", sources, [*_units(folder), *_control_files(folder)])


def _kept(folder: str, what: What, sources: tuple[str, ...], names: Iterable[str]) -> Kept:
    stamped = [(name, file_stamp(os.path.join(folder, name))) for name in names]
    there = [(name, stamp) for name, stamp in stamped if stamp is not None]
    in_use = any(not _is_free(os.path.join(folder, name)) for name, _ in there)
    size = sum(stamp.size for _, stamp in there)
    used = max(
        (stamp.changed / 1e9 for name, stamp in there if not name.endswith(f"/{_TIDIED}")),
        default=0.0,
    )
    return Kept(folder, what, sources, tuple(name for name, _ in there), size, used, in_use)


def _is_free(path: str) -> bool:
    try:
        return is_free(path)
    except OSError:
        return False  # what cannot be opened is left alone


def _units(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if _UNIT.fullmatch(entry.name)]


def _shard_files(folder: str) -> list[str]:
    """Return the names that an index in a folder gives; of a broken one nothing."""
    try:
        table = load_index(folder)
    except StreamingError:
        return []
    names = [name for role in table.files for name in table.basenames(role)]
    return [*names, SUMS, INDEX_NAME]


def _control_files(folder: str) -> list[str]:
    """Return what lies in the control folder, two levels deep."""
    found: list[str] = []
    for lead in _CONTROLS:
        path = os.path.join(folder, lead)
        if os.path.islink(path):
            continue
        with suppress(OSError), os.scandir(path) as entries:
            found += [
                f"{lead}/{entry.name}" for entry in entries if entry.is_file(follow_symlinks=False)
            ]
    return found


def _sources(folder: str) -> tuple[str, ...]:
    """Return what the files in a folder come from, as was noted there."""
    found: set[str] = set()
    control = os.path.join(folder, CONTROL)
    with suppress(OSError):
        for name in os.listdir(control):
            if name == SOURCE or (name.startswith(f"{SOURCE}-") and name.endswith(".json")):
                found |= _noted(os.path.join(control, name))
    return tuple(sorted(found))


def _noted(path: str) -> set[str]:
    with suppress(OSError, ValueError), open(path, "rb") as file:
        noted: object = json.loads(file.read(_RECORD_BYTES))
        url = cast("dict[str, object]", noted).get("url") if isinstance(noted, dict) else None
        return {url} if isinstance(url, str) else set()
    return set()
