"""What holds of streams: all bytes in order, from anywhere, of one version, and nothing kept."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from streaming_core.errors import ObjectTooLargeError, RangeError, StoreError
from streaming_core.testing._contract._abilities import Abilities

if TYPE_CHECKING:
    from streaming_core._store import Store

__all__ = ["StreamContract"]

_LARGE = bytes(range(256)) * (5 * 2048 + 1)  # 2.5 MiB and a bit: no whole number of pieces
_MOST_PIECE_BYTES = 8 << 20


def _streamed(store: Store, key: str, start: int = 0, max_bytes: int | None = None) -> bytes:
    """Return all bytes of a stream."""
    with closing(store.stream(key, start=start, max_bytes=max_bytes)) as pieces:
        return b"".join(map(bytes, pieces))


class StreamContract(Abilities):
    """Tests of streams."""

    def test_streams_from_anywhere(self, store: Store) -> None:
        """The pieces make up the object from `start` on; at its very end there is none."""
        store.put("a", [_LARGE])
        for start in (0, 1, 1 << 20, (1 << 20) + 17, len(_LARGE) - 1, len(_LARGE)):
            assert _streamed(store, "a", start) == _LARGE[start:], start

    def test_streams_flat_read_only_pieces(self, store: Store) -> None:
        """Each piece is a flat view of bytes that nobody can write to, not empty and not huge."""
        store.put("a", [_LARGE])
        with closing(store.stream("a")) as pieces:
            for piece in pieces:
                assert (piece.readonly, piece.format, piece.ndim) == (True, "B", 1)
                assert 0 < len(piece) <= _MOST_PIECE_BYTES

    def test_streams_an_empty_object(self, store: Store) -> None:
        """An object of no bytes has no piece, and is no error."""
        store.put("a", [])
        assert _streamed(store, "a") == b""

    def test_refuses_to_start_outside(self, store: Store) -> None:
        """A start before the first byte or after the last is an error, not an empty stream."""
        store.put("a", [b"0123456789"])
        for start in (-1, 11, 1 << 40):
            with pytest.raises(RangeError, match="a"):
                pytest.fail(f"from {start}: {_streamed(store, 'a', start)!r}")

    def test_streams_no_more_than_allowed(self, store: Store) -> None:
        """`max_bytes` is about the whole object, wherever the stream starts."""
        store.put("a", [b"0123456789"])
        assert _streamed(store, "a", 8, 10) == b"89"
        with pytest.raises(ObjectTooLargeError, match=r"10.*9"):
            _streamed(store, "a", 8, 9)

    def test_a_stream_is_of_one_version(self, store: Store) -> None:
        """An object that is replaced on the way gives the old one whole, or an error."""
        store.put("a", [_LARGE])
        got = b""
        try:
            with closing(store.stream("a")) as pieces:
                for number, piece in enumerate(pieces):
                    got += bytes(piece)
                    if not number:
                        store.put("a", [_LARGE[::-1]])
        except StoreError:
            assert _LARGE.startswith(got)
        else:
            assert got == _LARGE
        assert store.get("a") == _LARGE[::-1]

    def test_a_stream_may_be_left(self, store: Store) -> None:
        """A stream that is closed early, or never begun, hinders nothing."""
        store.put("a", [_LARGE])
        store.stream("a").close()
        with closing(store.stream("a")) as pieces:
            assert _LARGE.startswith(bytes(next(pieces)))
        store.put("a", [b"new"])
        assert _streamed(store, "a") == b"new"
        store.delete("a")
        self.assert_holds(store, [])
