"""The judge: whole validation of one entry of the index, with every problem it has.

The parser has a fast way to see that an entry is fine. Whatever it does not see as fine comes here,
so this module alone says what is accepted; the fast way may only accept less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core._index._problems import member, shown
from streaming_core._index._schema import ENTRY_KEYS, FORMATS, META_FORMATS, VERSION, ShardSchema
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileInfo, FileRole
from streaming_core._names import name_problem
from streaming_core._units import parse_bytes
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._index._problems import Problems

__all__ = [
    "INDEX_NAME",
    "MAX_INT63",
    "MAX_UINT32",
    "Verdict",
    "basename_problem",
    "judge_entry",
    "judge_schema",
    "judge_version",
]

MAX_INT63: Final = 2**63 - 1
MAX_UINT32: Final = 2**32 - 1
INDEX_NAME: Final = "index.json"

_FILE_KEYS: Final = ("basename", "bytes", "hashes")
_MAX_SIZE_TEXT = 32
_COMPRESSION = re.compile(r"[A-Za-z0-9_-]+(?::-?[0-9]{1,9})?", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+", re.ASCII)


@dataclass(slots=True)
class Verdict:
    """What is good in an entry; the entry as a whole is, if no problem was noted."""

    schema: ShardSchema | None
    samples: int
    files: dict[FileRole, FileInfo]
    extras: dict[str, Any]


def judge_entry(entry: dict[str, Any], path: str, problems: Problems) -> Verdict:
    """Note everything that is wrong with `entry` and return what is right."""
    schema = judge_schema(entry, path, problems)
    fmt = entry.get("format")
    known = ENTRY_KEYS.get(fmt if isinstance(fmt, str) else "", ENTRY_KEYS[""])
    for key in sorted(known - entry.keys()):
        problems.add(member(path, key), "required key is missing", "missing")
    if "version" in entry:
        judge_version(entry["version"], f"{path}.version", problems)
    extras = {key: value for key, value in entry.items() if key not in known}
    files: dict[FileRole, FileInfo] = {}
    for role in ROLES:
        key = ROLE_KEYS[role]
        if key in known and key in entry:
            _judge_role(entry, role, f"{path}.{key}", problems, files, extras)
    samples = None
    if "samples" in entry:
        samples = problems.integer(entry["samples"], f"{path}.samples", 0, MAX_UINT32)
        if samples is not None and isinstance(fmt, str):
            _judge_sizes(fmt, samples, files, path, problems)
    return Verdict(schema, samples or 0, files, extras)


def judge_version(value: object, path: str, problems: Problems) -> None:
    """Note it unless `value` is the version there is."""
    if not isinstance(value, int) or isinstance(value, bool):
        problems.wrong_type(value, path, f"the integer {VERSION}")
    elif value != VERSION:
        problems.add(path, f"required {VERSION}, came {shown(value)}", "value")


def basename_problem(name: str) -> str | None:
    """Return why no file of a shard may have this name, or None."""
    if name == INDEX_NAME:
        return "it is the name of the index itself"
    return name_problem(name)


# --- files ----------------------------------------------------------------------------------------


def _judge_role(
    entry: dict[str, Any],
    role: FileRole,
    path: str,
    problems: Problems,
    files: dict[FileRole, FileInfo],
    extras: dict[str, Any],
) -> None:
    value = entry[ROLE_KEYS[role]]
    if role in {"zip", "zip_meta"}:
        compression = entry.get("compression")
        if value is None and isinstance(compression, str):
            text = f"required an object, because compression is {compression!r:.60}, came null"
            problems.add(path, text, "value")
        if value is not None and compression is None and "compression" in entry:
            problems.add(path, "required null, because compression is null", "value")
        if value is None:
            return
    document = problems.members(value, path)
    if document is None:
        return
    unknown = {key: extra for key, extra in document.items() if key not in _FILE_KEYS}
    if unknown:
        extras[ROLE_KEYS[role]] = unknown
    info = _judge_file(document, path, problems)
    if info is not None:
        files[role] = info


def _judge_file(document: dict[str, Any], path: str, problems: Problems) -> FileInfo | None:
    before = len(problems)
    for key in _FILE_KEYS:
        if key not in document:
            problems.add(f"{path}.{key}", "required key is missing", "missing")
    name: str | None = None
    size: int | None = None
    if "basename" in document:
        name = problems.text(document["basename"], f"{path}.basename")
        unsafe = name and basename_problem(name)
        if unsafe:
            text = f"required a safe relative name, came {name!r:.80}: {unsafe}"
            problems.add(f"{path}.basename", text, "name")
    if "bytes" in document:
        size = problems.integer(document["bytes"], f"{path}.bytes", 0, MAX_INT63)
    if "hashes" in document:
        _judge_hashes(document["hashes"], f"{path}.hashes", problems)
    if name is None or size is None or len(problems) > before:
        return None
    return FileInfo(name, size, document["hashes"])


def _judge_hashes(value: object, path: str, problems: Problems) -> None:
    hashes = problems.members(value, path)
    for name, digest in (hashes or {}).items():
        at = member(path, name)
        if not name:
            problems.add(at, "required a hash's name as key, came an empty text", "value")
        text = problems.text(digest, at)
        if text is not None and not _HEX.fullmatch(text):
            wanted = "required hex digits, two for each byte"
            problems.add(at, f"{wanted}, came {text!r:.80}", "value")


def _judge_sizes(
    fmt: str, samples: int, files: dict[FileRole, FileInfo], path: str, problems: Problems
) -> None:
    """Offsets are uint32 and lie, with the count, in the shard or, for text formats, its meta."""
    raw = files.get("raw")
    if raw is not None and raw.bytes > MAX_UINT32 and fmt in FORMATS:
        text = f"required at most {MAX_UINT32}, because offsets have 32 bits, came {raw.bytes}"
        problems.add(f"{path}.raw_data.bytes", text, "range")
    role: FileRole = "raw_meta" if fmt in META_FORMATS else "raw"
    head = files.get(role)
    least = 4 + 4 * (samples + 1)
    if head is not None and fmt in FORMATS and head.bytes < least:
        text = f"required at least {least} for the offsets of {samples} samples, came {head.bytes}"
        problems.add(f"{path}.{ROLE_KEYS[role]}.bytes", text, "range")


# --- schema ---------------------------------------------------------------------------------------


def judge_schema(entry: dict[str, Any], path: str, problems: Problems) -> ShardSchema | None:
    """Note what is wrong with the keys that shards share; keys that are missing are not noted."""
    before = len(problems)
    fmt = _judge_format(entry, path, problems)
    compression = _optional_text(entry, "compression", path, problems)
    if compression is not None and not _COMPRESSION.fullmatch(compression):
        text = (
            f"required null, a name, or a name and a level as in 'zstd:7', came {compression!r:.80}"
        )
        problems.add(f"{path}.compression", text, "value")
    hashes = problems.texts(entry["hashes"], f"{path}.hashes") if "hashes" in entry else None
    if "size_limit" in entry:
        _judge_size_limit(entry["size_limit"], f"{path}.size_limit", problems)
    if fmt is None:
        return None
    columns = _judge_columns(fmt, entry, path, problems)
    newline = _line_text(entry, "newline", path, problems) if fmt in META_FORMATS else None
    separator = _line_text(entry, "separator", path, problems) if fmt == "xsv" else None
    missing = ENTRY_KEYS[fmt] - entry.keys() - {"samples", "version", *ROLE_KEYS.values()}
    if columns is None or hashes is None or missing or len(problems) > before:
        return None
    return ShardSchema(
        fmt,
        *columns,
        compression=compression,
        hashes=hashes,
        size_limit=entry["size_limit"],
        newline=newline,
        separator=separator,
    )


def _judge_format(entry: dict[str, Any], path: str, problems: Problems) -> Any:  # noqa: ANN401 - a ShardFormat or None
    if "format" not in entry:
        return None
    fmt = problems.text(entry["format"], f"{path}.format")
    if fmt is None or fmt in FORMATS:
        return fmt
    text = f"required one of {', '.join(FORMATS)}, came {fmt!r:.80}"
    return problems.add(f"{path}.format", text, "value")


def _optional_text(entry: dict[str, Any], key: str, path: str, problems: Problems) -> str | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        problems.wrong_type(value, f"{path}.{key}", "a text or null")
        return None
    return value


def _line_text(entry: dict[str, Any], key: str, path: str, problems: Problems) -> str | None:
    return problems.text(entry[key], f"{path}.{key}") if key in entry else None


def _judge_size_limit(value: object, path: str, problems: Problems) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        if isinstance(value, int) and not isinstance(value, bool):
            problems.integer(value, path, 0, MAX_INT63)
        else:
            problems.wrong_type(value, path, "an integer, a text such as '64mb', or null")
        return
    try:
        if len(value) > _MAX_SIZE_TEXT:
            msg = f"not a size: a text of {len(value)} characters"
            raise SchemaError(msg)  # noqa: TRY301 - numbers that long break the conversion
        parse_bytes(value)
    except SchemaError as error:
        problems.add(path, str(error), "value")


_Columns = tuple[tuple[str, ...], tuple[str, ...], tuple[int | None, ...]]


def _judge_columns(
    fmt: str, entry: dict[str, Any], path: str, problems: Problems
) -> _Columns | None:
    if fmt == "json":
        return _judge_json_columns(entry, path, problems)
    if "column_names" not in entry or "column_encodings" not in entry:
        return None
    names_path = f"{path}.column_names"
    # A column may well be called "", so names are not checked as other texts are.
    names = _names(entry["column_names"], names_path, problems)
    encodings = problems.texts(entry["column_encodings"], f"{path}.column_encodings")
    sizes: tuple[int | None, ...] | None = ()
    lengths = {"column_encodings": _length(entry["column_encodings"])}
    if fmt == "mds" and "column_sizes" in entry:
        sizes = _judge_column_sizes(entry["column_sizes"], f"{path}.column_sizes", problems)
        lengths["column_sizes"] = _length(entry["column_sizes"])
    wanted = _length(entry["column_names"])
    for key, length in lengths.items():
        if None not in {length, wanted} and length != wanted:
            text = f"required {wanted} items, one for each of column_names, came {length}"
            problems.add(f"{path}.{key}", text, "value")
    if names is None or encodings is None or sizes is None:
        return None
    return names, encodings, sizes


def _names(value: object, path: str, problems: Problems) -> tuple[str, ...] | None:
    items = problems.array(value, path)
    if items is None:
        return None
    wrong = [i for i, item in enumerate(items) if not isinstance(item, str)]
    for i in wrong:
        problems.wrong_type(items[i], f"{path}[{i}]", "a text")
    if wrong:
        return None
    names = cast("list[str]", items)
    for i in range(1, len(names)):
        if names[i] == names[i - 1]:
            problems.add(f"{path}[{i}]", f"the name {names[i]!r:.80} occurs twice", "duplicate")
        elif names[i] < names[i - 1]:
            text = (
                f"required names in sorted order, came {names[i]!r:.80} after {names[i - 1]!r:.80}"
            )
            problems.add(f"{path}[{i}]", text, "value")
    return tuple(names)


def _judge_json_columns(entry: dict[str, Any], path: str, problems: Problems) -> _Columns | None:
    if "columns" not in entry:
        return None
    columns = problems.members(entry["columns"], f"{path}.columns")
    if columns is None:
        return None
    at = f"{path}.columns"
    encodings = [problems.text(value, member(at, name)) for name, value in columns.items()]
    return tuple(columns), tuple(text for text in encodings if text is not None), ()


def _judge_column_sizes(
    value: object, path: str, problems: Problems
) -> tuple[int | None, ...] | None:
    items = problems.array(value, path)
    if items is None:
        return None
    before = len(problems)
    for i, item in enumerate(items):
        if item is not None:
            problems.integer(item, f"{path}[{i}]", 1, MAX_UINT32)
    return tuple(items) if len(problems) == before else None


def _length(value: object) -> int | None:
    return len(cast("list[object]", value)) if isinstance(value, list) else None
