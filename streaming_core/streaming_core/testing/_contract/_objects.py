"""What holds of single objects: round trips, overwriting, ranges, what is missing."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from streaming_core.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    RangeError,
)
from streaming_core.testing._contract._abilities import DEADLINE_SECONDS, Abilities
from streaming_core.testing._contract._requests import REQUESTS

if TYPE_CHECKING:
    from streaming_core._store import Buffer, ByteRange, Store

__all__ = ["ObjectContract"]

_LARGE = bytes(range(256)) * (9 * 4096)  # 9 MiB: more than any buffer or single part on the way
_RANGES_OUTSIDE: list[ByteRange] = [
    (0, 11),
    (10, 11),
    (11, None),
    (11, 12),
    (-11, None),
    (4, 3),
    (-3, 5),
    (-3, -1),
]
_UNICODE_KEYS = [
    "ähnlich.mds",
    "数据/碎片.00000",
    "🙂",
    "with space/and 'quotes'",
    "100%/a+b=c&d#e?f",
]


class ObjectContract(Abilities):
    """Tests of objects."""

    # --- round trips ------------------------------------------------------------------------------

    def test_returns_the_bytes_that_were_put(self, store: Store) -> None:
        """An object reads back equal, and `put`, `head` and `list` agree on it."""
        info = store.put("folder/a", [b"body"])
        assert store.get("folder/a") == b"body"
        assert (info.key, info.size) == ("folder/a", 4)
        assert store.head("folder/a") == info
        self.assert_holds(store, [info])

    def test_keeps_an_empty_object(self, store: Store) -> None:
        """No buffers, and empty ones, make an object of no bytes that exists."""
        store.put("none", [])
        store.put("empty", [b"", bytearray()])
        assert [store.get("none"), store.get("empty")] == [b"", b""]
        assert [store.head("none").size, store.head("empty").size] == [0, 0]
        self.assert_holds(store, [store.head("empty"), store.head("none")])
        assert store.get_ranges("none", [(0, 0), (0, None)]) == [b"", b""]

    def test_joins_buffers_of_every_kind(self, store: Store) -> None:
        """Bytes, bytearrays and views of any shape, item type and stride are stored in order."""
        numbers = memoryview(bytes(range(24)))
        shaped = numbers.cast("I", [2, 3])
        buffers: list[Buffer] = [
            b"head",
            bytearray(b"more"),
            shaped,
            numbers[::2],
            b"",
            memoryview(b"tail"),
        ]
        store.put("a", buffers)
        expected = b"headmore" + bytes(range(24)) + bytes(range(0, 24, 2)) + b"tail"
        assert store.get("a") == expected

    def test_joins_thousands_of_buffers(self, store: Store) -> None:
        """More buffers than one system call takes arrive whole and in order."""
        parts = [number.to_bytes(4, "big") for number in range(5000)]
        assert store.put("a", parts).size == len(parts) * 4
        assert store.get("a") == b"".join(parts)

    def test_does_not_keep_the_buffers(self, store: Store) -> None:
        """Changing a buffer after `put` changes nothing in the store."""
        buffer = bytearray(b"before")
        store.put("a", [buffer])
        buffer[:] = b"after!"
        assert store.get("a") == b"before"

    def test_stores_a_large_object(self, store: Store) -> None:
        """Nine MiB come back equal, whole and by ranges."""
        store.put("large", [_LARGE[:100], memoryview(_LARGE)[100:]])
        assert store.get("large") == _LARGE
        assert store.get_ranges("large", [(8 << 20, None), (5, 6 << 20)]) == [
            _LARGE[8 << 20 :],
            _LARGE[5 : 6 << 20],
        ]

    def test_takes_unicode_keys(self, store: Store) -> None:
        """Keys of any script and with reserved characters of URLs work in every verb."""
        for key in _UNICODE_KEYS:
            store.put(key, [b"body"])
            assert store.get(key) == b"body"
            assert store.head(key).key == key
            self.assert_holds(store, [key])
            store.delete(key)
            self.assert_holds(store, [])
            with pytest.raises(ObjectNotFoundError):
                store.head(key)

    # --- overwriting ------------------------------------------------------------------------------

    def test_overwrites(self, store: Store) -> None:
        """The second put wins, also if it is shorter, and the etag changes."""
        first = store.put("a", [b"first, and longer"])
        second = store.put("a", [b"second"])
        assert store.get("a") == b"second"
        assert (store.head("a"), second.etag == first.etag) == (second, False)

    def test_a_reader_never_sees_a_mixture(self, store: Store) -> None:
        """While one thread overwrites, another always reads one whole version."""
        self.require("overwrite-while-read")
        versions = [b"a" * 300_000, b"b" * 700_001]
        store.put("a", [versions[0]])
        enough_read, enough_written = threading.Event(), threading.Event()

        # Each goes on until the other has done its share as well, so that the two do overlap.
        def write() -> None:
            number = 0
            while not (enough_written.is_set() and enough_read.is_set()):
                number += 1
                body = versions[number % 2]
                store.put("a", [body[:1000], body[1000:]])
                if number == self.num_overwrites:
                    enough_written.set()

        seen: set[bytes] = set()
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for number in itertools.count():
                    if number >= self.num_overwrites and (
                        enough_written.is_set() or writing.done()
                    ):
                        break
                    seen.add(store.get("a"))
            finally:
                enough_written.set()
                enough_read.set()
            writing.result(DEADLINE_SECONDS)
        assert {len(body) for body in seen} <= {len(body) for body in versions}
        assert seen <= set(versions)

    def test_create_only_refuses_an_existing_object(self, store: Store) -> None:
        """`if_absent` creates, then refuses and leaves what is there."""
        self.require("create-only")
        assert store.put("a", [b"first"], if_absent=True).size == len(b"first")
        with pytest.raises(AlreadyExistsError, match="a"):
            store.put("a", [b"second"], if_absent=True)
        assert store.get("a") == b"first"
        store.delete("a")
        store.put("a", [b"third"], if_absent=True)
        assert store.get("a") == b"third"

    def test_create_only_has_one_winner(self, store: Store) -> None:
        """Of eight threads that create the same key at once, exactly one succeeds."""
        self.require("create-only")
        self.require("create-only-race")
        start = threading.Barrier(8)

        def create(number: int) -> int | None:
            start.wait(DEADLINE_SECONDS)
            try:
                store.put("a", [str(number).encode()], if_absent=True)
            except AlreadyExistsError:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(create, range(8)) if number is not None]
        assert len(winners) == 1
        assert store.get("a") == str(winners[0]).encode()

    # --- what is missing --------------------------------------------------------------------------

    def test_reading_what_is_missing_names_key_and_place(self, store: Store) -> None:
        """A missing object is `ObjectNotFoundError` and `FileNotFoundError`, with key and URL."""
        store.put("folder/a", [b"body"])
        missing = ("absent", "folder/absent", "folder", "folder/a/below")
        for verb, key in itertools.product(("get", "get_ranges", "stream", "head"), missing):
            with pytest.raises(ObjectNotFoundError) as caught:
                REQUESTS[verb](store, key)
            assert isinstance(caught.value, FileNotFoundError)
            assert repr(key) in str(caught.value)
            assert store.url in str(caught.value)

    def test_deletes_and_does_not_mind_what_is_missing(self, store: Store) -> None:
        """A deleted object is gone; deleting it again, or what never was, raises nothing."""
        store.put("folder/a", [b"body"])
        store.delete("folder/a")
        store.delete("folder/a")
        store.delete("never/was")
        self.assert_holds(store, [])
        with pytest.raises(ObjectNotFoundError):
            store.get("folder/a")

    def test_deleting_a_folder_of_objects_keeps_them(self, store: Store) -> None:
        """A folder is no object: deleting its name removes nothing below it."""
        store.put("folder/a", [b"body"])
        store.delete("folder")
        assert store.get("folder/a") == b"body"

    # --- ranges and limits ------------------------------------------------------------------------

    def test_reads_a_range(self, store: Store) -> None:
        """Ranges are end-exclusive; an open end and a suffix reach to the last byte."""
        store.put("a", [b"0123456789"])
        expected: dict[ByteRange, bytes] = {
            (0, 3): b"012",
            (4, 9): b"45678",
            (3, None): b"3456789",
            (-3, None): b"789",
            (-10, None): b"0123456789",
            (0, 10): b"0123456789",
            (5, 5): b"",
            (10, 10): b"",
        }
        assert {wanted: store.get_ranges("a", [wanted])[0] for wanted in expected} == expected

    def test_reads_many_ranges_in_the_order_asked(self, store: Store) -> None:
        """Ranges may overlap, repeat and go backwards; none of them gives none."""
        store.put("a", [b"0123456789"])
        ranges: list[ByteRange] = [(8, 10), (0, 4), (2, 6), (0, 4), (-1, None)]
        assert store.get_ranges("a", ranges) == [b"89", b"0123", b"2345", b"0123", b"9"]
        assert store.get_ranges("a", []) == []

    def test_ranges_name_their_version(self, store: Store) -> None:
        """The etag of ranges is that of `head`, and another one after the object was replaced."""
        store.put("a", [b"0123456789"])
        for ranges in ([(0, 2)], [(-2, None)], [(0, 1), (8, None)]):
            assert store.get_ranges("a", ranges).etag in {store.head("a").etag, ""}
        before = store.get_ranges("a", [(0, 2)]).etag
        store.put("a", [b"another length"])
        assert not before or store.get_ranges("a", [(0, 2)]).etag != before

    def test_each_write_is_a_version(self, store: Store) -> None:
        """An object that is replaced at once by another of its size has another etag."""
        self.require("etag-of-each-write")
        etags = [store.put("a", [body]).etag for body in (b"first", b"other", b"third")]
        assert len(set(etags)) == len(etags)
        assert store.head("a").etag == etags[-1]

    def test_a_range_outside_is_an_error(self, store: Store) -> None:
        """A range that is malformed or not fully there raises instead of returning less."""
        store.put("a", [b"0123456789"])
        for wanted in _RANGES_OUTSIDE:
            with pytest.raises(RangeError, match="a"):
                pytest.fail(f"{wanted} gave {store.get_ranges('a', [(0, 1), wanted])}")

    def test_refuses_more_than_max_bytes(self, store: Store) -> None:
        """`max_bytes` allows an object of that size and refuses a larger one."""
        store.put("a", [b"0123456789"])
        assert store.get("a", max_bytes=10) == b"0123456789"
        with pytest.raises(ObjectTooLargeError, match=r"10.*9"):
            store.get("a", max_bytes=9)
