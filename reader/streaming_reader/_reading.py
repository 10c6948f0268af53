"""How a stream reads data that nobody converted: its format, and what of the rows is wanted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, cast

from streaming_core._arguments import unexpected
from streaming_core.errors import SchemaError
from streaming_reader._options import KeptOptions

if TYPE_CHECKING:
    from streaming_core._virtual import Nulls, View
    from streaming_core._virtual._filter import Filter

__all__ = ["HUB", "Reading", "guarded"]

_MAGIC: Final = re.compile(r"[*?\[{]")
_OWN: Final = "mds"
HUB: Final = "hf"
"""The format of a data set on the Hugging Face Hub, whose card says which files it has."""
_GUARDED: Final = "catalog"
"""The option that may hold secrets."""
_TABLES: Final = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a user says of data that is no MDS; picklable.

    Example:
        >>> Reading.of("/data/year=*/*.parquet", columns=["x"]).columns
        ('x',)
        >>> Reading.of("/data/c4") is None  # shards with an index
        True
    """

    format: str | None = None
    """Name of the format; None if the files' names tell it."""
    columns: tuple[str, ...] | None = None
    """The columns wanted, None for all."""
    filter: Filter | None = None
    """Which rows are wanted, None for all."""
    nulls: Nulls = "none"
    """What becomes of missing values."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the format takes."""
    index: str | None = None
    """Where the index of the files lies, if neither beside them nor to be made."""

    @classmethod
    def of(
        cls,
        place: str | None,
        *,
        format: str | None = None,
        columns: Sequence[str] | None = None,
        filters: object = None,
        nulls: object = "none",
        options: Mapping[str, Any] | None = None,
        index: str | None = None,
    ) -> Self | None:
        """Return how to read `place`; None if it is a folder of shards with an index.

        That it is not is said by `format`, by a pattern, by a file's name, or by an `index`.

        Raises `SchemaError` for what cannot be used, or has no meaning for shards.
        """
        asked = {
            "columns": columns,
            "filters": filters,
            "format_options": options,
            "index": index,
        }
        given = [name for name, value in asked.items() if value is not None]
        if nulls != "none":
            given.append("nulls")
        last = (place or "").rstrip("/").rpartition("/")[2]
        if format is None and not given and "." not in last and not _is_pattern(place or ""):
            return None  # the usual case, for which nothing need be loaded
        from streaming_core._virtual import check_nulls, kind_of_name  # noqa: PLC0415
        from streaming_core._virtual._discover import packed_hint  # noqa: PLC0415
        from streaming_core._virtual._filter import Filter  # noqa: PLC0415

        is_named = format is None and kind_of_name(last) is not None
        is_told = is_named or index is not None or _is_pattern(place or "")
        if format == _OWN or (format is None and not is_told):
            if given:
                msg = (
                    f"{', '.join(given)} cannot be given for an MDS data set, whose records are "
                    "read whole: leave samples or columns out with filter= and transform= of "
                    "create_dataloader. If the data is of another format, name it, such as "
                    f"format='parquet' (there are {', '.join(_formats())})"
                )
                raise SchemaError(msg)
            hint = None if format or os.path.isdir(place or "") else packed_hint(last)  # noqa: PTH112 - a text
            if hint is not None:
                raise SchemaError(hint)
            return None
        if format is not None and format not in _formats():
            msg = f"no format {format!r}; there are mds, {', '.join(_formats())}"
            raise SchemaError(msg)
        if format in {HUB, *_TABLES} and index is not None:
            msg = f"index= is for files; format {format!r} says itself which files it has"
            raise SchemaError(msg)
        wanted = None if filters is None else Filter.of(filters)
        given_options = guarded(options) or {}
        if format is not None:
            _check_options(format, given_options)
        return cls(format, _names(columns), wanted, check_nulls(nulls), given_options, index)

    def plain_options(self) -> dict[str, Any]:
        """Return the options that hold no secrets."""
        return {name: value for name, value in self.options.items() if name != _GUARDED}

    def secret_options(self) -> dict[str, Any]:
        """Return all options, those that hold secrets included.

        Raises `AccessDeniedError` if they stayed behind in another process.
        """
        kept = self.options.get(_GUARDED)
        return (
            {**self.options, _GUARDED: kept.get()}
            if isinstance(kept, KeptOptions)
            else {**self.options}
        )

    @property
    def is_table(self) -> bool:
        """Whether a table format says which files there are."""
        return self.format in _TABLES

    @property
    def view(self) -> View:
        """What of the rows is wanted, and in which form."""
        from streaming_core._virtual import View  # noqa: PLC0415 - as above

        return View(self.columns, self.nulls)


def _is_pattern(place: str) -> bool:
    """Tell whether a place is a pattern; the query of a URL, such as a signature, is none."""
    head, mark, query = place.partition("?")
    if mark and "://" in head and "=" in query:
        place = head
    return _MAGIC.search(place) is not None


def guarded(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a format's options, those that may hold secrets kept as storage options are."""
    if options is None:
        return None
    found = dict(options)
    if isinstance(found.get(_GUARDED), Mapping):
        found[_GUARDED] = KeptOptions.of(found[_GUARDED])
    return found


def _check_options(format: str, given: Mapping[str, Any]) -> None:
    """Raise `SchemaError` if a format does not take one of some options."""
    from streaming_core._virtual import open_kind  # noqa: PLC0415 - as above
    from streaming_core._virtual._hub import HUB_OPTIONS  # noqa: PLC0415 - as above
    from streaming_core._virtual._tables import TABLE_OPTIONS  # noqa: PLC0415 - as above

    takes = HUB_OPTIONS if format == HUB else TABLE_OPTIONS.get(format)
    if takes is None:
        open_kind(format, given)
        return
    unknown = sorted(given.keys() - set(takes))
    if unknown:
        names = ", ".join(map(str, unknown))
        msg = f"format {format!r} does not take {names}; its options: {', '.join(takes)}"
        raise SchemaError(msg)


def _formats() -> list[str]:
    from streaming_core._virtual import kind_names  # noqa: PLC0415 - as above

    return sorted([*kind_names(), *_TABLES, HUB])


def _names(columns: object) -> tuple[str, ...] | None:
    if columns is None:
        return None
    given: object = columns
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    names = tuple(cast("Sequence[object]", columns)) if is_list else ()
    if names and all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return cast("tuple[str, ...]", names)
    raise unexpected(given, "columns", "a list of different names, at least one")
