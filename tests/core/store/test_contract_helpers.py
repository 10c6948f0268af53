"""The checks that all stores share: views, keys, prefixes and ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._store import MemoryStore, ObjectInfo
from streaming_core._store._contract import byte_views, check_prefix, resolve_ranges
from streaming_core.errors import RangeError, UnsafeKeyError


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=">i4"),
        np.arange(12, dtype=np.int16)[::3],
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.zeros((0, 3)),
        np.array(7, dtype=np.uint64),
        np.array([True, False]),
        np.arange(4, dtype=np.float16),
    ],
    ids=["shaped", "big-endian", "strided", "fortran", "empty", "scalar", "bool", "half"],
)
def test_arrays_become_their_bytes_in_c_order(array: np.ndarray) -> None:
    """Any shape, byte order and stride of array yields what `tobytes` gives."""
    assert b"".join(byte_views([array.data])) == array.tobytes()


def test_contiguous_buffers_are_not_copied() -> None:
    """A view shows later changes of the buffer, so nothing was copied."""
    buffer = bytearray(b"before")
    (view,) = byte_views([buffer])
    buffer[:1] = b"B"
    assert bytes(view) == b"Before"


@given(
    data=st.binary(max_size=40),
    start=st.integers(-50, 50),
    stop=st.none() | st.integers(-50, 50),
)
def test_a_range_equals_a_slice_of_the_same_length_or_is_refused(
    data: bytes, start: int, stop: int | None
) -> None:
    """A range is never silently short: it gives all its bytes, or `RangeError`."""
    store = MemoryStore()
    store.put("a", [data])
    wanted = len(data) - start if stop is None else stop - start
    if start < 0:
        wanted = -start if stop is None else -1
    fits = wanted >= 0 and (start + wanted <= len(data) if start >= 0 else wanted <= len(data))
    if fits:
        (part,) = store.get_ranges("a", [(start, stop)])
        assert part == data[start:stop]
        assert len(part) == wanted
    else:
        with pytest.raises(RangeError):
            store.get_ranges("a", [(start, stop)])


def test_a_bad_range_is_named_with_the_objects_size() -> None:
    """The message says which range, of which object, and how large that is."""
    with pytest.raises(RangeError, match=r"'shard' in memory://x: the range \(4, 99\).* 10 bytes"):
        resolve_ranges([(0, 4), (4, 99)], 10, url="memory://x", key="shard")


@pytest.mark.parametrize("prefix", ["", ".", "..", "a/.", "part-", "part/"])
def test_text_that_safe_names_start_with_is_a_prefix(prefix: str) -> None:
    """Even `..` may begin a name such as `..data`."""
    check_prefix(prefix, url="memory://x")


@pytest.mark.parametrize("prefix", ["../", "/", "a//", "./"])
def test_text_that_no_safe_name_starts_with_is_refused(prefix: str) -> None:
    """A prefix cannot leave the store either."""
    with pytest.raises(UnsafeKeyError):
        check_prefix(prefix, url="memory://x")


def test_info_is_frozen_and_slotted() -> None:
    """What a store says of an object cannot be changed or extended."""
    info = ObjectInfo("a", 1, "e")
    with pytest.raises(AttributeError):
        info.size = 2  # type: ignore[misc]
    assert not hasattr(info, "__dict__")
