"""FlatBuffers, as far as Arrow's messages take it: tables are read, and laid out. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Table", "Writer", "root"]

_VECTOR_MOST: Final = 1 << 24


class Table:
    """A table in a buffer; every method raises `ValueError` for what lies outside the buffer."""

    __slots__ = ("_at", "_data", "_slots")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        vtable = at - _unpack(data, "<i", at)
        size = _unpack(data, "<H", vtable)
        count = max(0, (size - 4) // 2)
        self._slots = [_unpack(data, "<H", vtable + 4 + 2 * n) for n in range(count)]

    def _place(self, slot: int) -> int:
        offset = self._slots[slot] if slot < len(self._slots) else 0
        return self._at + offset if offset else 0

    def number(self, slot: int, form: str, default: int = 0) -> int:
        """Return a number, `form` as `struct` has it."""
        place = self._place(slot)
        return _unpack(self._data, form, place) if place else default

    def _target(self, slot: int) -> int:
        place = self._place(slot)
        return place + _unpack(self._data, "<I", place) if place else 0

    def table(self, slot: int) -> Table | None:
        """Return a table within this one."""
        target = self._target(slot)
        return Table(self._data, target) if target else None

    def tables(self, slot: int) -> list[Table]:
        """Return those of a vector of tables."""
        raw = self.structs(slot, 4)
        first = self._target(slot) + 4
        return [
            Table(self._data, first + at + struct.unpack_from("<I", raw, at)[0])
            for at in range(0, len(raw), 4)
        ]

    def structs(self, slot: int, width: int) -> bytes:
        """Return the bytes of a vector whose items have `width` bytes each."""
        target = self._target(slot)
        if not target:
            return b""
        count = _unpack(self._data, "<I", target)
        first = target + 4
        found = self._data[first : first + count * width]
        if count > _VECTOR_MOST or len(found) < count * width:
            msg = f"a vector of {count} items where {len(self._data) - first} bytes are left"
            raise ValueError(msg)
        return found

    def text(self, slot: int) -> str:
        """Return a text; a broken one is a `ValueError` too."""
        return self.structs(slot, 1).decode()


def root(data: bytes, at: int = 0) -> Table:
    """Return the outermost table of a buffer that begins at `at`."""
    return Table(data, at + _unpack(data, "<I", at))


def _unpack(data: bytes, form: str, at: int) -> int:
    if at < 0:
        msg = f"something at byte {at}"
        raise ValueError(msg)
    try:
        value: int = struct.unpack_from(form, data, at)[0]
    except struct.error as error:
        msg = f"something at byte {at} of {len(data)}"
        raise ValueError(msg) from error
    return value


class Writer:
    """Lays tables and vectors one after the other; what refers to others is laid before them."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray(4)
        """What was laid so far; begins with where the first table is."""

    def table(self, slots: Sequence[str]) -> list[int]:
        """Lay a table of zeros, and return where its slots are; empty ones are left out.

        A slot is a form of `struct`: the eight-byte ones must come first of those that are laid.
        """
        order = sorted(
            (n for n, form in enumerate(slots) if form), key=lambda n: -struct.calcsize(slots[n])
        )
        offsets = [0] * len(slots)
        size = 4
        for n in order:
            offsets[n] = size
            size += struct.calcsize("<" + slots[n])
        vtable = struct.pack(f"<{len(slots) + 2}H", 4 + 2 * len(slots), size, *offsets)
        # Behind a table's first four bytes come its longest fields, which must be aligned.
        self._pad((len(self.data) + len(vtable) + 4) % 8)
        start = len(self.data)
        self.data += vtable
        at = len(self.data)
        self.data += bytes(size)
        struct.pack_into("<i", self.data, at, at - start)
        if not any(self.data[:4]):
            self.refer(0, at)
        return [at, *(at + offset if offset else 0 for offset in offsets)]

    def vector(self, content: bytes, width: int) -> int:
        """Lay a vector of items of `width` bytes, and return where it is."""
        self._pad((len(self.data) + 4) % 8)
        at = len(self.data)
        self.data += struct.pack("<I", len(content) // width) + content
        return at

    def put(self, at: int, form: str, value: int) -> None:
        """Set a number."""
        struct.pack_into("<" + form, self.data, at, value)

    def refer(self, at: int, target: int) -> None:
        """Let a slot refer to a table or a vector."""
        struct.pack_into("<I", self.data, at, target - at)

    def _pad(self, over: int) -> None:
        if over:
            self.data += bytes(8 - over)
