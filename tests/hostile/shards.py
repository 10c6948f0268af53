"""A corpus of shards that lie about themselves, each with the error that it must give."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.core.format.mds.making import make_shard, of_record, of_value, opened, promised

from streaming_core._format._mds import config_bytes, shard_header
from streaming_core.errors import ShardCorruptError, ShardSizeError, StreamingError

if TYPE_CHECKING:
    from streaming_core._index import ShardInfo

__all__ = ["GOOD", "LARGE", "OPENING", "RECORDS", "VALUES", "Case", "good"]

COLUMNS = {"a": "int", "b": "str", "c": "ndarray"}
SAMPLES = [{"a": i, "b": "é" * i, "c": np.arange(i)} for i in range(3)]
_INFO, GOOD = make_shard(COLUMNS, SAMPLES)
_START = int.from_bytes(GOOD[4:8], "little")
_CONFIG = 4 * 5
LARGE = 1 << 20


def good() -> tuple[ShardInfo, bytes]:
    """Return a good shard of three samples."""
    return _INFO, GOOD


@dataclass(frozen=True)
class Case:
    """One hostile shard."""

    name: str
    info: ShardInfo
    raw: bytes
    text: str
    """A pattern that the message must have."""
    error: type[StreamingError] = ShardCorruptError
    """The exact class."""

    def run(self) -> Any:
        """Open the shard and decode all of it."""
        return list(opened(self.info, self.raw))


def word(index: int, value: int, raw: bytes = GOOD) -> bytes:
    """Return the shard with the 32-bit word `index` of its header changed."""
    return raw[: 4 * index] + (value % 2**32).to_bytes(4, "little") + raw[4 * index + 4 :]


def with_config(config: bytes) -> bytes:
    """Return the shard with other settings, and offsets that fit them."""
    ends = np.frombuffer(GOOD, "<u4", 4, 4)
    return shard_header(np.diff(ends).astype(np.int64), config) + GOOD[_START:]


def _opening() -> list[Case]:
    settings = json.loads(GOOD[_CONFIG:_START])
    other = make_shard(
        {"a": "int", "b": "str", "d": "ndarray"}, [{**s, "d": s["c"]} for s in SAMPLES]
    )
    cases: list[tuple[str, bytes, str]] = [
        ("no byte", b"", "byte 0: a shard has at least 8 bytes, this one has 0"),
        ("seven bytes", GOOD[:7], "byte 0: a shard has at least 8 bytes, this one has 7"),
        ("count of none", word(0, 0), "byte 0: the shard counts 0 samples, the index 3"),
        ("count one less", word(0, 2), "byte 0: the shard counts 2 samples, the index 3"),
        ("count one more", word(0, 4), "byte 0: the shard counts 4 samples, the index 3"),
        ("count of minus one", word(0, -1), "byte 0: the shard counts 4294967295 samples"),
        ("count of the least number", word(0, -(2**31)), "the shard counts 2147483648 samples"),
        (
            "start of nothing",
            word(1, 0),
            "byte 4: records start at byte 0, within the header of 20",
        ),
        (
            "start in the offsets",
            word(1, 19),
            "byte 4: records start at byte 19, within the header",
        ),
        ("start in the settings", word(1, 60), "byte 20: the settings in the header are not JSON"),
        ("start at the end", word(1, len(GOOD)), "sample 0 ends at byte .*, before its start"),
        ("start beyond the end", word(1, 2**31), "sample 0 ends at byte .*, before its start"),
        ("offsets out of order", word(2, _START - 1), "byte 8: sample 0 ends at byte .*, before"),
        ("an offset of zero", word(3, 0), "byte 12: sample 1 ends at byte 0, before its start"),
        ("an offset beyond the end", word(3, len(GOOD) + 9), "sample 2 ends at byte .*, before"),
        ("all offsets huge", _all_offsets(2**32 - 1), "the last sample ends at byte 4294967295"),
        ("last offset short", word(4, len(GOOD) - 1), "byte 16: the last sample ends at byte"),
        ("last offset beyond", word(4, len(GOOD) + 1), "byte 16: the last sample ends at byte"),
        ("cut in the offsets", GOOD[:15], "3 samples need 20 bytes of header, the file has 15"),
        ("cut in the settings", GOOD[:50], "the last sample ends at byte .*, the file at 50"),
        ("cut in the samples", GOOD[:-1], "the last sample ends at byte .*, the file at"),
        ("something behind", GOOD + b"\0", "the last sample ends at byte .*, the file at"),
        (
            "a page of HTML",
            b"<!DOCTYPE html><html>Log in, please</html>",
            "the shard counts 1329865020",
        ),
        ("a zstd frame", b"\x28\xb5\x2f\xfd" + bytes(50), "the shard counts 4247762216 samples"),
        ("noise", bytes(range(255, 0, -1)), "the shard counts"),
        (
            "settings of nothing",
            with_config(b""),
            "byte 20: the settings in the header are not JSON",
        ),
        ("settings cut", with_config(GOOD[_CONFIG : _START - 1]), "settings .* are not JSON"),
        ("settings with a tail", with_config(b"{} {}"), "settings .* are not JSON"),
        ("settings not UTF-8", with_config(b'{"a": "\xff"}'), "settings .* are not JSON"),
        ("settings in a list", with_config(b"[1]"), r"settings .* are no object: \[1\]"),
        ("settings nested deep", with_config(b"[" * 60000), "settings .* are not JSON"),
        ("settings with a long number", with_config(b"1" * 5000), "settings .* are not JSON"),
        ("settings without end", with_config(b" " * LARGE), "1048576 bytes of settings .* at most"),
        (
            "another data set",
            other[1],
            "column_names .*'d'.* in the header, but .*'c'.* in the index",
        ),
    ]
    for key, value in (("column_names", ["a"]), ("column_names", 3), ("column_encodings", None)):
        text = f"byte 20: {key} .* in the header, but .* in the index"
        changed = config_bytes({**settings, key: value})
        cases.append((f"settings with {key} {value}", with_config(changed), text))
    made = [Case(name, promised(_INFO, raw), raw, text) for name, raw, text in cases]
    return made + _disagreeing() + _of_other_size()


def _all_offsets(value: int) -> bytes:
    raw = GOOD
    for index in range(1, 5):
        raw = word(index, value, raw)
    return raw


def _disagreeing() -> list[Case]:
    """Return shards whose index is wrong, too, so that both have the same count or sizes."""
    many = 2**32 - 1
    wrong = replace(_INFO.schema, column_sizes=(4, None, None))
    return [
        Case(
            "a huge count in both",
            replace(_INFO, samples=many),
            word(0, many),
            f"byte 0: {many} samples need 17179869188 bytes of header",
        ),
        Case(
            "sizes of columns that are not theirs",
            replace(_INFO, schema=wrong),
            GOOD,
            r"gives column sizes \[4, None, None\], but the encodings have \[8, None, None\]",
        ),
    ]


def _of_other_size() -> list[Case]:
    text = "the file has .* bytes, the index says"
    sizes = (0, 1, 3, 4, 7, 8, 15, 20, 50, _START, _START + 3, len(GOOD) - 1)
    cuts = {f"first {size} bytes": GOOD[:size] for size in sizes}
    cuts |= {"one byte more": GOOD + b"\0", "twice": GOOD * 2, "HTML": b"<html></html>"}
    return [Case(name, _INFO, raw, text, ShardSizeError) for name, raw in cuts.items()]


OPENING = _opening()
"""Refused when they are opened."""


# --- records --------------------------------------------------------------------------------------

_WIDE = {"a": "str", "b": "bytes", "c": "int"}
_INT = bytes(8)


def _record(name: str, record: bytes, text: str, columns: dict[str, str] = _WIDE) -> Case:
    info, raw = of_record(columns, record)
    return Case(name, info, raw, text)


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


RECORDS = [
    _record("an empty record", b"", "record has 0 bytes, fewer than its 8 bytes of lengths"),
    _record("a record of lengths cut", bytes(7), "record has 7 bytes, fewer than its 8"),
    _record("lengths without columns", bytes(8), "columns have 16 bytes, but the record has 8"),
    _record("a length beyond", _words(1, 0) + _INT, "columns have 17 bytes, but the record has 16"),
    _record("a length short", _words(0, 0) + _INT + b"x", "columns have 16 bytes, .* has 17"),
    _record("a huge length", _words(2**32 - 1, 0) + _INT, "columns have 4294967311 bytes"),
    _record("a negative length", _words(1, 2**32 - 1) + _INT, "columns have 4294967312 bytes"),
    _record("lengths that overflow", _words(2**31, 2**31) + _INT, "columns have 4294967312 bytes"),
    _record(
        "a fixed record cut", bytes(7), "columns have 8 bytes, but the record has 7", {"x": "int"}
    ),
    _record("a fixed record with more", bytes(9), "have 8 bytes, .* has 9", {"x": "int"}),
    _record("a fixed array cut", bytes(5), "have 6 bytes, .* has 5", {"x": "ndarray:uint16:3"}),
]
"""Records that do not follow their layout."""


# --- values ---------------------------------------------------------------------------------------


def _value(name: str, encoding: str, data: bytes, text: str) -> Case:
    info, raw = of_value(encoding, data)
    return Case(f"{encoding}: {name}", info, raw, f"sample 0: column 'x': .*{text}")


def _dims(*dims: int, code: bytes = b"\x08") -> bytes:
    return code + bytes([len(dims) << 2 | 3]) + struct.pack(f"<{len(dims)}Q", *dims)


def _pil(width: int, height: int, mode: bytes = b"L", *, mode_size: int | None = None) -> bytes:
    return _words(width, height, len(mode) if mode_size is None else mode_size) + mode


_Make = Callable[[], list[tuple[str, str, bytes, str]]]


def _arrays() -> list[tuple[str, str, bytes, str]]:
    fixed = b""
    return [
        ("no byte", "ndarray", b"", "not the code of an element type: no byte"),
        ("no shape", "ndarray", b"\x08", "end before the array's shape"),
        ("no shape", "ndarray:uint8", b"", "end before the array's shape"),
        ("code 0", "ndarray", b"\0\0", "not the code of an element type: 00"),
        ("code 255", "ndarray", b"\xff\0", "not the code of an element type: ff"),
        ("63 dimensions and no more", "ndarray", b"\x08\xff", "end within .* of 63 dimensions"),
        ("63 of one", "ndarray:uint8", b"\xfc" + b"\1" * 63, "0 bytes of values, but shape"),
        ("63 huge dimensions", "ndarray", _dims(*[2**64 - 1] * 63), "0 bytes of values, but"),
        ("a dimension of 2**63", "ndarray", _dims(2**63), r"shape \(9223372036854775808,\)"),
        ("dimensions that overflow to 0", "ndarray", _dims(2**32, 2**32), "but shape"),
        (
            "dimensions that overflow to 8",
            "ndarray:int64",
            _dims(2**61 + 1, code=fixed) + _INT,
            "but",
        ),
        ("nothing of something huge", "ndarray", _dims(0, 2**63), "dimension"),
        ("nothing of too much", "ndarray", _dims(2**40, 0, 2**40), "too big"),
        ("values cut", "ndarray", b"\x10\x04\x03" + bytes(5), r"5 bytes .* shape \(3,\) .* has 6"),
        ("values and more", "ndarray:uint8", b"\x04\x03" + bytes(4), "4 bytes of values"),
    ]


def _images() -> list[tuple[str, str, bytes, str]]:
    many = b"list[png]", b"list[pil]", b"list[jpeg]"
    lists = [
        case
        for name in (encoding.decode() for encoding in many)
        for case in (
            ("nothing", name, b"", "a list needs at least 8 bytes, came 0"),
            ("no count", name, bytes(7), "a list needs at least 8 bytes, came 7"),
            ("a huge count", name, _words(0, 2**32 - 1), "a list of 4294967295 items does not fit"),
            ("a huge item", name, _words(0, 1, 2**32 - 1), "items .* end at byte 4294967307 of 12"),
            ("sizes that overflow", name, _words(0, 2, 2**31, 2**31), "end at byte 4294967312"),
            (
                "more than the items",
                name,
                _words(0, 0) + b"x",
                "items of a list end at byte 8 of 9",
            ),
        )
    ]
    return [
        *lists,
        ("nothing", "jpeg_array", b"", "a list needs at least 4 bytes, came 0"),
        ("a huge count", "jpegarray", _words(2**32 - 1), "a list of 4294967295 items does not fit"),
        ("a huge item", "jpeg_array", _words(1, 2**32 - 1), "end at byte 4294967303 of 8"),
        (
            "no JPEG",
            "jpeg_array",
            _words(1, 3) + b"abc",
            "no image file that Pillow knows: 3 bytes",
        ),
        ("no PNG", "list[png]", _words(0, 1, 3) + b"abc", "no image file that Pillow knows"),
        ("nothing", "pil", b"", "error: "),
        ("a huge image", "pil", _pil(2**32 - 1, 2**32 - 1), "an image of 4294967295 x 4294967295"),
        ("sizes that overflow", "pil", _pil(2**16, 2**16) + b"x", "has 4294967296 bytes, came 1"),
        ("a huge height of nothing", "pil", _pil(0, 2**31 - 1), "without pixels of 0 x 2147483647"),
        (
            "a huge width of nothing",
            "pil",
            _pil(2**31, 0, b"1"),
            "without pixels of 2147483648 x 0",
        ),
        ("a huge mode", "pil", _pil(1, 1, b"", mode_size=2**32 - 1), "mode of 4294967295 bytes"),
        ("no mode", "pil", _pil(1, 1, b"") + b"x", "unknown image mode ''"),
        ("an unknown mode", "pil", _pil(1, 1, b"XYZ") + bytes(3), "unknown image mode 'XYZ'"),
        ("a mode not ASCII", "pil", _pil(1, 1, b"\xff"), "unknown image mode"),
        ("pixels cut", "pil", _pil(2, 2, b"RGB") + bytes(11), "has 12 bytes, came 11"),
        ("pixels and more", "pil", _pil(2, 2, b"1") + bytes(3), "has 2 bytes, came 3"),
        ("nothing", "png", b"", "no image file that Pillow knows: 0 bytes"),
        ("no JPEG", "jpeg", b"\xff\xd8\xff", "no image file that Pillow knows: 3 bytes"),
        ("no PNG", "png", b"\x89PNG\r\n\x1a\n" + bytes(20), "no image file that Pillow knows"),
    ]


def _texts() -> list[tuple[str, str, bytes, str]]:
    deep = b"[" * 100_000
    return [
        ("not UTF-8", "str", b"ab\xff", "can't decode byte 0xff"),
        ("half a character", "str", b"\xed\xa0\x80", "can't decode"),
        ("a cut character", "str", b"\xf0\x9f\x99", "can't decode"),
        ("nothing", "json", b"", "Expecting value"),
        ("nested deep", "json", deep, "RecursionError"),
        ("objects nested deep", "json", b'{"a":' * 50_000, "RecursionError"),
        ("more than one", "json", b"1 2", "Extra data"),
        ("not UTF-8", "json", b'"\xff"', "can't decode"),
        ("a long number", "json", b"1" * 5000, "4300 digits"),
        ("nothing", "str_int", b"", "not the text of a whole number: str ''"),
        ("letters", "str_int", b"0x10", "not the text of a whole number: str '0x10'"),
        ("5,000 digits", "str_int", b"7" * 5000, "4300 digits"),
        ("a million digits", "str_int", b"7" * LARGE, "4300 digits"),
        ("not UTF-8", "str_int", b"1\xff", "not the text of a whole number: bytes"),
        ("letters", "str_float", b"one", "not the text of a float: str 'one'"),
        ("many letters", "str_float", b"one " * (LARGE // 4), "not the text of a float"),
        ("letters", "str_decimal", b"one", "not the text of a decimal: str 'one'"),
        ("many letters", "str_decimal", b"one " * (LARGE // 4), "not the text of a decimal"),
        ("a huge exponent", "str_decimal", b"1E" + b"9" * 30, "not the text of a decimal"),
        ("not UTF-8", "str_decimal", b"\xff", "not the text of a decimal: bytes"),
    ]


def _large() -> list[tuple[str, str, bytes, str]]:
    """Return values whose decoders would allocate many times their size if they were careless."""
    count = LARGE // 4
    return [
        ("a million empty items", "jpeg_array", _words(count) + bytes(4 * count), "no image file"),
        ("a million empty items", "list[pil]", _words(0, count) + bytes(4 * count), "error: "),
        ("noise", "png", bytes(LARGE), "no image file that Pillow knows: 1048576 bytes"),
        ("noise", "str", b"\xff" * LARGE, "can't decode"),
        ("an open text", "json", b'"' + b"a" * LARGE, "Unterminated string"),
        ("pixels cut", "pil", _pil(1024, 1024, b"RGB") + bytes(LARGE), "has 3145728 bytes"),
        ("an array cut", "ndarray:int64", _dims(LARGE, code=b"") + bytes(LARGE), "but shape"),
    ]


_MAKERS: tuple[_Make, ...] = (_arrays, _images, _texts, _large)
VALUES = [_value(*case) for make in _MAKERS for case in make()]
"""Values that are not what their encoding says."""
