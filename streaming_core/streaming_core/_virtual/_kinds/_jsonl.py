"""JSON lines: an object on each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_core._virtual._kinds._inflate import named
from streaming_core._virtual._kinds._json_rows import JsonRows
from streaming_core._virtual._kinds._records import LIMITS, Form, Limits, Records
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._virtual._kinds._lines import Text

__all__ = ["JsonLines"]


class JsonLines(Records):
    """JSON lines files (NDJSON). Blank lines count for nothing.

    The types are those that all rows of a file fit, found by parsing all of it once: whole numbers
    are `int64`, or `uint64` if some need that, with others among them `double`. A file is refused
    in which that would change a whole number, or none of these has all of them. Strings stay
    strings, times too. The option `schema`, of each wanted column the type, saves the
    parsing; `as_text` names columns that are read as text, strings as they are, all else as it is
    written.

    Unlike Python's `json`, a key that comes twice in an object is refused, and so are half
    surrogates; `NaN` and `Infinity` are taken.
    """

    name = "jsonl"
    suffixes = named(".jsonl", ".ndjson")
    options = ("schema", "as_text", *LIMITS)

    def __init__(
        self,
        *,
        schema: Mapping[str, Any] | None = None,
        as_text: Sequence[str] = (),
        **limits: int,
    ) -> None:
        super().__init__(Limits(**limits))
        if isinstance(as_text, str) or not all(isinstance(name, str) for name in as_text):  # pyright: ignore[reportUnnecessaryIsInstance] - a user gave it
            msg = f"as_text must be names of columns, such as ['x']; came {as_text!r}"
            raise SchemaError(msg)
        self._schema = schema
        self._as_text = tuple(as_text)

    def form(self, text: Text) -> Form:
        """Return that of lines."""
        del text
        return JsonRows(self._schema, self._as_text)

    def form_of(self, code: str, names: list[str]) -> Form:
        """Return that of lines."""
        del code, names
        return JsonRows(self._schema, self._as_text)
