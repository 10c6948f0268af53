"""The contract of one column's encoding, which users extend."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["Encoding", "came"]


class Encoding:
    """How the values of one MDS column become bytes and back.

    Subclass it, set `size` for a fixed number of bytes (or leave None), and register the class in
    `mds_encodings` under a new name to use it in `MDSWriter(columns=...)`. Instances hold no state
    that changes, so threads may share them. `encode` raises `TypeError`, `ValueError` or
    `OverflowError` with a text that says what was wanted and what came; the writer adds column and
    sample.

    Example:
        >>> from streaming_core import Encoding, mds_encodings
        >>> class Celsius(Encoding):
        ...     size = 2
        ...
        ...     def encode(self, obj: float) -> bytes:
        ...         return round(obj * 100).to_bytes(2, "little", signed=True)
        ...
        ...     def decode(self, data: bytes) -> float:
        ...         return int.from_bytes(data, "little", signed=True) / 100
        >>> mds_encodings["celsius"] = Celsius
        >>> Celsius().decode(Celsius().encode(-4.25))
        -4.25
        >>> del mds_encodings["celsius"]
    """

    size: int | None = None
    """Bytes of every value, or None where values differ in size."""

    unsafe: ClassVar[bool] = False
    """Whether decoding can run code that the data chose; such columns must be allowed by name."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the bytes of `obj`."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - any user's value
        """Return the value whose bytes are `data`."""
        raise NotImplementedError

    @classmethod
    def parse(cls, arguments: str) -> Encoding:
        """Return the encoding for the text after `name:`; most encodings take none."""
        msg = f"this encoding takes no arguments, but {arguments!r} came"
        raise ValueError(msg)


def came(obj: object) -> str:
    """Describe a value that was not wanted, briefly: its type and the start of its repr."""
    text = repr(obj)
    if len(text) > 60:  # noqa: PLR2004 - one line of a terminal, with the rest of the message
        text = text[:57] + "..."
    return f"{type(obj).__name__} {text}"
