"""The headers of a tar archive: walking over its members, whatever wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BLOCK_BYTES",
    "ArchiveBytes",
    "Header",
    "Member",
    "next_of",
    "padded",
    "parse_header",
    "walk",
]

BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(BLOCK_BYTES)
_REST_BYTES: Final = 1 << 20
_MOST_EXTRA: Final = 1 << 20
"""Bytes of a long name or of extended fields; more is taken for damage."""
_REGULAR: Final = frozenset({b"0", b"\0", b"7"})
_LINKS: Final = {
    b"1": ("a hard link", "--hard-dereference"),
    b"2": ("a symbolic link", "--dereference --hard-dereference"),
}
"""What they are, and the options of tar that write files in their place."""
_NO_DATA: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
"""Links, devices, folders and pipes: what their size says is not in the archive."""
_REFUSED: Final = {
    b"S": "a sparse file, whose bytes do not lie there as they are; write the archive without "
    "--sparse",
    b"M": "the rest of a file of another volume; join the volumes to one archive",
}
_CHECKSUM: Final = slice(148, 156)
_SPARSE_FIELD: Final = "GNU.sparse."


class ArchiveBytes(Protocol):
    """The bytes of an archive that is walked over; every read begins after the one before."""

    def read(self, start: int, count: int) -> bytes:
        """Return bytes from `start` on, fewer than `count` only where the archive ends."""
        ...

    def reaches(self, stop: int) -> bool:
        """Tell whether the archive has at least `stop` bytes."""
        ...


class Header(NamedTuple):
    """One block of 512 bytes that describes what follows it."""

    name: bytes
    size: int
    kind: bytes
    link: bytes = b""
    """Which other member this one is, if it is a link."""


class Member(NamedTuple):
    """A file in the archive."""

    name: str
    start: int
    """Where its bytes begin."""
    size: int
    link: str = ""
    """What kind of link to which file it is, and what writes none; empty if it is none."""


def walk(archive: ArchiveBytes, where: str) -> Iterator[Member]:
    """Yield the regular files and links, in order; the others are passed over.

    That all of a file is there is known only when the next one is asked for.

    Raises:
        SourceFormatError: It is no whole tar archive, or has files that cannot be read as they lie;
            says at which byte.
    """
    at = 0
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    long_name: bytes | None = None
    while True:
        block = archive.read(at, BLOCK_BYTES)
        if block == _ZEROS:
            _check_rest(archive, at + BLOCK_BYTES, where)
            if own or long_name is not None:
                msg = f"{where}: the archive ends after a header that belongs to one more file"
                raise SourceFormatError(msg)
            return
        header = _header(block, at, where)
        start = at + BLOCK_BYTES
        if header.kind in b"xXgLKN":
            text = _extra(archive, header, start, where)
            if header.kind == b"g":
                shared = {**shared, **pax_fields(text, where, at)}
            elif header.kind in b"xX":
                own = {**own, **pax_fields(text, where, at)}
            elif header.kind == b"L":
                long_name = text.rstrip(b"\0")
            at = start + padded(header.size)
            continue
        fields = {**shared, **own}
        name = _name(header, long_name, fields)
        size = _size(header, fields, where, at)
        own, long_name = {}, None
        _refuse(header.kind, name, fields, where)
        is_file = header.kind in _REGULAR and not name.endswith("/")
        stored = _stored(header.kind, size)
        if is_file:
            yield Member(name, start, size)
        elif header.kind in _LINKS:
            yield Member(name, start, 0, _link(header, fields))
        # Not before: a reader that only goes forward would have passed over the bytes.
        if not archive.reaches(start + stored):
            msg = (
                f"{where}: it ends within {name!r}, of which {size} bytes belong from byte {start} "
                "on; the archive is cut short: fetch or write it again"
            )
            raise SourceFormatError(msg)
        at = start + padded(stored)


def next_of(header: Header, at: int) -> int:
    """Return where the next header is, if this one is at `at` and no extended one says else."""
    return at + BLOCK_BYTES + padded(_stored(header.kind, header.size))


def _stored(kind: bytes, size: int) -> int:
    return 0 if kind in _NO_DATA else size


def padded(size: int) -> int:
    """Return how many bytes `size` bytes take in an archive.

    Example:
        >>> padded(0), padded(1), padded(512), padded(513)
        (0, 512, 512, 1024)
    """
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def parse_header(block: bytes) -> Header | str:
    """Return what a block says, or what is wrong with it."""
    if len(block) < BLOCK_BYTES:
        return "the archive ends there without the mark of its end"
    told = _number(block[_CHECKSUM])
    blank = bytearray(block)
    blank[_CHECKSUM] = b"        "
    if told != sum(blank):
        # Some old programs summed the bytes with signs.
        signed = sum(blank) - 256 * sum(byte > 127 for byte in blank)  # noqa: PLR2004 - see above
        if told != signed:
            return (
                f"a header was expected, but its checksum is wrong; it begins with {block[:16]!r}"
            )
    size = _number(block[124:136])
    if size is None:
        return f"a file's size is no number: {block[124:136]!r}"
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    return Header(name, size, block[156:157], block[157:257].split(b"\0", 1)[0])


def pax_fields(text: bytes, where: str, at: int) -> dict[str, str]:
    """Return the fields of an extended header: lines `length key=value`, each as long as it says.

    Example:
        >>> pax_fields(b"12 path=a/b" + bytes([10]), "x.tar", 0)
        {'path': 'a/b'}
    """
    found: dict[str, str] = {}
    begin = 0
    while begin < len(text) and text[begin]:
        digits, space, _ = text[begin : begin + 24].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        line = text[begin : begin + length]
        key, mark, value = line[len(digits) + 1 : -1].partition(b"=")
        if len(line) != length or not line.endswith(b"\n") or not mark:
            msg = f"{where}: the extended header at byte {at} is broken at {text[begin:][:40]!r}"
            raise SourceFormatError(msg)
        found[_text(key)] = _text(value)
        begin += length
    return found


def _header(block: bytes, at: int, where: str) -> Header:
    header = parse_header(block)
    if isinstance(header, Header):
        return header
    if not at:
        msg = f"{where}: no tar archive: {header}"
    elif len(block) < BLOCK_BYTES:
        msg = (
            f"{where}, byte {at}: {header}; it is cut short, or its writer did not finish: fetch "
            "or write it again"
        )
    else:
        msg = f"{where}, byte {at}: {header}; the archive is damaged: fetch or write it again"
    raise SourceFormatError(msg)


def _check_rest(archive: ArchiveBytes, at: int, where: str) -> None:
    """Raise if there is anything after the mark of the end, which other programs ignore."""
    while rest := archive.read(at, _REST_BYTES):
        if rest.count(0) != len(rest):
            begin = at + next(i for i, byte in enumerate(rest) if byte)
            msg = (
                f"{where}: the archive ends, but at byte {begin} more follows, which would be "
                "lost. If it is several archives in a row, join them with 'tar --concatenate', or "
                "keep them as files of their own"
            )
            raise SourceFormatError(msg)
        at += len(rest)


def _extra(archive: ArchiveBytes, header: Header, start: int, where: str) -> bytes:
    if header.size > _MOST_EXTRA:
        msg = f"{where}: an extended header of {header.size} bytes at byte {start}; it is damaged"
        raise SourceFormatError(msg)
    text = archive.read(start, header.size) if header.size else b""
    if len(text) < header.size:
        msg = f"{where}: it ends within the extended header at byte {start}; it is cut short"
        raise SourceFormatError(msg)
    return text


def _name(header: Header, long_name: bytes | None, fields: dict[str, str]) -> str:
    found = _text(header.name if long_name is None else long_name)
    return fields.get("GNU.sparse.name", fields.get("path", found))


def _size(header: Header, fields: dict[str, str], where: str, at: int) -> int:
    text = fields.get("size")
    if text is None:
        return header.size
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004 - fits 64 bits
        msg = f"{where}, byte {at}: a file's size is no number: {text[:40]!r}"
        raise SourceFormatError(msg)
    return int(text)


def _refuse(kind: bytes, name: str, fields: dict[str, str], where: str) -> None:
    why = _REFUSED.get(kind)
    if why is None and any(key.startswith(_SPARSE_FIELD) for key in fields):
        why = _REFUSED[b"S"]
    if why is not None:
        msg = f"{where}: {name!r} is {why}"
        raise SourceFormatError(msg)


def _link(header: Header, fields: dict[str, str]) -> str:
    what, options = _LINKS[header.kind]
    to = fields.get("linkpath", _text(header.link))
    advice = f"write the archive with 'tar {options}'"
    return f"{what} to {to!r}, and so has no bytes of its own; {advice}"


def _number(field: bytes) -> int | None:
    """Return a number as headers have it: octal digits, or large ones in binary; None if neither.

    Example:
        >>> _number(b"0000017 " + bytes(4)), _number(bytes([128]) + bytes(10) + bytes([9]))
        (15, 9)
    """
    if field[0] == 0x80:  # noqa: PLR2004 - the mark of a number in binary
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        return None
    return int(digits, 8)


def _text(name: bytes) -> str:
    """Return a name as text; what is no UTF-8 shows as an escape."""
    return name.decode("utf-8", "backslashreplace")
