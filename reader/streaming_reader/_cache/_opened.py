"""The shards that one process keeps mapped, within what it may map altogether."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH116

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming_core._format import Shard

__all__ = [
    "NO_DESCRIPTORS",
    "Opened",
    "Together",
    "clear_all",
    "mappings_allowed",
    "with_descriptors",
]

_T = TypeVar("_T")
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""What the system says when too many files are open."""
_FEW, _MANY = 64, 1024
_LEAST_SHARDS: Final = 2
_CHECK_NS: Final = 1_000_000_000
"""For so long a shard may be used again without a look at its files, which can cost more."""


def mappings_allowed() -> int:
    """Return how many files this process may keep mapped, as each may cost it a descriptor.

    A quarter of the files that it may have open, within bounds.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if allowed < 0 else max(_FEW, min(_MANY, allowed // 4))


class _Use:
    """A mapped shard, what it costs, and when it was last asked for."""

    __slots__ = ("at", "checked", "files", "marks", "nbytes", "noted", "shard")

    def __init__(self, shard: Shard, nbytes: int, files: int, paths: Iterable[str]) -> None:
        self.shard = shard
        self.nbytes = nbytes
        self.files = files
        self.at = self.checked = time.time_ns()
        self.noted = False
        self.marks = {path: _mark(path) for path in paths}

    def is_whole(self) -> bool:
        """Tell whether the files are what was mapped, or have no name any more.

        Reading a page that was cut off ends the process, and no error can be raised then.
        """
        self.checked = time.time_ns()
        return all(_mark(path) in {mark, None} for path, mark in self.marks.items())


def _mark(path: str) -> tuple[int, int] | None:
    """Return what tells a file from another, or from a part of it; None if it is not there."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size


class _Process:
    """All that this process keeps mapped, and the one guard of it, made anew in a forked child."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.guard = threading.Lock()
        self.members: WeakSet[Opened] = WeakSet()


_process = _Process()
os.register_at_fork(after_in_child=_process.start)


class Together:
    """Caches of one process that keep no more than `most_bytes` mapped between them.

    Two shards may stay in any case. Belongs to the process that made it.
    """

    __slots__ = ("_members", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._members: WeakSet[Opened] = WeakSet()

    def add(self, opened: Opened) -> None:
        """Take in a cache's mapped shards."""
        with _process.guard:
            self._members.add(opened)

    def members(self, key: object) -> list[Opened]:
        """Return what is kept of the caches of `key`, where that is anything."""
        with _process.guard:
            return [one for one in self._members if one.key == key and len(one)]

    def shrink(self) -> list[_Use]:
        """Drop what was unused for longest until the rest is within the limit; guard held."""
        members = list(self._members)
        count = sum(map(len, members))
        excess = sum(one.nbytes for one in members) - self._most_bytes
        gone: list[_Use] = []
        while excess > 0 and count > _LEAST_SHARDS:
            use = _oldest(members).pop()
            gone.append(use)
            excess, count = excess - use.nbytes, count - 1
        return gone


class Opened:
    """The last few shards that were opened; dropping one here unmaps it once nobody else has it.

    All of a process together keep no more files than `mappings_allowed`, or than `capacity` if
    that is more. Threads may share it. Belongs to the process that made it.
    """

    __slots__ = (
        "__weakref__",
        "_capacity",
        "_dropped",
        "_together",
        "_uses",
        "files",
        "key",
        "nbytes",
        "owner",
    )

    def __init__(self, capacity: int, together: Together | None = None, key: object = None) -> None:
        self._capacity = capacity
        self._together = together
        self._uses: OrderedDict[int, _Use] = OrderedDict()
        self._dropped: dict[int, int] = {}
        self.key = key
        """What tells the folder and data set from others."""
        self.files = 0
        """How many files are mapped."""
        self.nbytes = 0
        """Their bytes."""
        self.owner = os.getpid()
        with _process.guard:
            _process.members.add(self)
        if together is not None:
            together.add(self)

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._uses)

    def __contains__(self, shard: int) -> bool:
        """Tell whether a shard is mapped; that is no use of it."""
        return shard in self._uses

    def get(self, shard: int) -> Shard | None:
        """Return a shard that is mapped, which is then the one most recently used.

        None too if its files were seen to have changed; they are looked at once a second.
        """
        with _process.guard:
            use = self._uses.get(shard)
            if use is None:
                return None
            self._uses.move_to_end(shard)
            use.at = time.time_ns()
            use.noted = False
        if use.at - use.checked > _CHECK_NS and not self.is_whole(shard):
            return None
        return use.shard

    def is_whole(self, shard: int) -> bool:
        """Tell whether a shard is mapped, after a look at its files; forget it if they changed."""
        with _process.guard:
            use = self._uses.get(shard)
        if use is None:
            return False
        if use.is_whole():
            return True
        self.drop(shard)
        return False

    def put(
        self,
        number: int,
        shard: Shard,
        *,
        nbytes: int = 0,
        files: int = 1,
        paths: Iterable[str] = (),
    ) -> dict[int, int]:
        """Keep a shard; return when it and those dropped since were last used, to be noted."""
        gone: list[_Use] = []  # unmapped when the guard is free again
        with _process.guard:
            if number in self._uses:
                gone.append(self._taken(number))
            use = _Use(shard, nbytes, files, paths)
            self._uses[number] = use
            self.files += files
            self.nbytes += nbytes
            while len(self._uses) > self._capacity:
                gone.append(self.pop())
            members = list(_process.members)
            excess = sum(one.files for one in members) - max(mappings_allowed(), self._capacity)
            while excess > 0 and sum(map(len, members)) > 1:
                gone.append(_oldest(members).pop())
                excess -= gone[-1].files
            if self._together is not None:
                gone += self._together.shrink()
            dropped, self._dropped = self._dropped, {}
        return {number: use.at, **dropped}

    def pop(self) -> _Use:
        """Take out the shard that was unused for longest; guard held."""
        number = next(iter(self._uses))
        use = self._taken(number)
        self._dropped[number] = use.at
        return use

    def oldest(self) -> int:
        """Return when the shard that was unused for longest was last used; guard held."""
        return next(iter(self._uses.values())).at

    def drop(self, number: int) -> None:
        """Forget a shard."""
        self.forget(lambda other: other == number)

    def clear(self) -> None:
        """Forget all shards."""
        self.forget(lambda _: True)

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Forget the shards of which `is_gone` says so."""
        with _process.guard:
            # Unmapped when the guard is free again.
            gone = [self._taken(number) for number in list(self._uses) if is_gone(number)]
        del gone

    def news(self) -> dict[int, int]:
        """Return when shards that were used since the last call were last used.

        In nanoseconds of `time.time`. The newest stand at the end, so that only they are looked at.
        """
        with _process.guard:
            found, self._dropped = self._dropped, {}
            for number, use in reversed(self._uses.items()):
                if use.noted:
                    break
                use.noted = True
                found[number] = use.at
        return found

    def _taken(self, number: int) -> _Use:
        use = self._uses.pop(number)
        self.files -= use.files
        self.nbytes -= use.nbytes
        return use


def _oldest(members: list[Opened]) -> Opened:
    """Return the one whose shard was unused for longest; one has a shard."""
    return min((one for one in members if len(one)), key=Opened.oldest)


def clear_all() -> None:
    """Forget what all caches of this process have mapped."""
    with _process.guard:
        members = list(_process.members)
    for opened in members:
        opened.clear()


def with_descriptors(act: Callable[[], _T]) -> _T:
    """Return what `act` returns, called again without mapped shards if it lacked descriptors.

    Each mapping may cost one; others of this process may have taken theirs.
    """
    try:
        return act()
    except OSError as error:
        if not _lacks_descriptors(error):
            raise
    clear_all()
    return act()


def _lacks_descriptors(error: BaseException | None) -> bool:
    """Tell whether an error, or what it came from, is that too many files are open."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
            return True
        error = error.__cause__
    return False
