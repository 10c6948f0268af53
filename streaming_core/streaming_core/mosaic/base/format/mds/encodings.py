"""Encodings of values, by name."""

from __future__ import annotations

from typing import Any

from streaming_core._format._mds import Encoding, encode_value, find_encoding, mds_encodings

__all__ = [
    "Encoding",
    "get_mds_encoded_size",
    "get_mds_encodings",
    "is_mds_encoding",
    "is_mds_encoding_safe",
    "mds_decode",
    "mds_encode",
]

_encodings = mds_encodings


def get_mds_encodings() -> set[str]:
    """Return the names of all encodings."""
    return set(mds_encodings)


def is_mds_encoding(encoding: str) -> bool:
    """Tell whether there is an encoding of this name, which may have arguments after a colon."""
    try:
        find_encoding(encoding, "")
    except ValueError:
        return False
    return True


def is_mds_encoding_safe(encoding: str) -> bool:
    """Tell whether decoding cannot run code that the data chose."""
    return not find_encoding(encoding, "").unsafe


def get_mds_encoded_size(encoding: str) -> int | None:
    """Return the bytes of every value, or None where values differ in size."""
    return find_encoding(encoding, "").size


def mds_encode(encoding: str, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
    """Return the bytes of a value.

    Example:
        >>> mds_decode("int", mds_encode("int", -1))
        -1
    """
    return encode_value(find_encoding(encoding, ""), obj)


def mds_decode(encoding: str, data: bytes) -> Any:  # noqa: ANN401 - any user's value
    """Return the value of some bytes."""
    return find_encoding(encoding, "").decode(data)
