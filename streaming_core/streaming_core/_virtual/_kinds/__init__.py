"""The formats that are read as they are."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._virtual._model import Kind

__all__ = ["kind_names", "kind_of_name", "open_kind"]

_KINDS: Final = {
    "parquet": ("_parquet", "Parquet"),
    "orc": ("_orc", "Orc"),
    "arrow": ("_arrow_ipc", "ArrowIpc"),
    "avro": ("_avro", "Avro"),
    "jsonl": ("_jsonl", "JsonLines"),
    "json": ("_json_array", "Json"),
    "text": ("_text", "PlainText"),
    "csv": ("_csv", "Csv"),
    "tsv": ("_csv", "Tsv"),
    "webdataset": ("_tar", "Tar"),
    "litdata": ("_litdata", "LitData"),
}
"""Module and class of each; imported when it is needed."""
_TABLE: Final = ("streaming_core._virtual._tables._kind", "TableFiles")
"""What reads the files of a plan; not a format that a user names."""


def kind_names() -> list[str]:
    """Return the names that `open_kind` takes."""
    return sorted(_KINDS)


def open_kind(name: str, options: Mapping[str, Any] | None = None) -> Kind:
    """Return the format of that name; `SchemaError` lists the names, or the options it takes."""
    if name not in _KINDS and name != "table":
        msg = f"no format {name!r}; there are {', '.join(kind_names())}"
        raise SchemaError(msg)
    kind = _class(name)
    given = dict(options or {})
    unknown = sorted(given.keys() - set(kind.options))
    if unknown:
        takes = ", ".join(kind.options) or "none"
        msg = f"format {name!r} does not take {', '.join(unknown)}; its options: {takes}"
        raise SchemaError(msg)
    return kind(**given)


def kind_of_name(key: str) -> str | None:
    """Return the format that the end of a file's name tells, None if it tells none."""
    lowered = key.lower()
    if "." not in lowered.rpartition("/")[2]:
        return None
    for name in _KINDS:
        kind = _class(name)
        if kind.is_told_by_name and lowered.endswith(kind.suffixes):
            return name
    return None


def _class(name: str) -> type[Kind]:
    module, attribute = _TABLE if name == "table" else _KINDS[name]
    place = module if "." in module else f"{__name__}.{module}"
    found: type[Kind] = getattr(importlib.import_module(place), attribute)
    return found
