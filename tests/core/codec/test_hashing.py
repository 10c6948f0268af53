"""What the hashes promise."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._codec import Buffer, Hasher, check_hashes, digest, digests, hash_names
from streaming_core.errors import SchemaError

KNOWN_OF_ABC = {
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha224": "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
    "xxh128": "06b05ab6733a618578af5f94892f3950",
    "xxh32": "32d153ff",
    "xxh3_128": "06b05ab6733a618578af5f94892f3950",
    "xxh3_64": "78af5f94892f3950",
    "xxh64": "44bc2cf5ad770999",
}


def test_the_17_names_are_those_of_the_format() -> None:
    """Exactly these names may stand in an index."""
    assert hash_names() == (
        *("blake2b", "blake2s", "md5", "sha1", "sha224", "sha256", "sha384"),
        *("sha3_224", "sha3_256", "sha3_384", "sha3_512", "sha512"),
        *("xxh128", "xxh32", "xxh3_128", "xxh3_64", "xxh64"),
    )


@pytest.mark.parametrize(("name", "expected"), KNOWN_OF_ABC.items())
def test_known_digests(name: str, expected: str) -> None:
    """Published test values come out, in lower-case hex."""
    assert digest(name, [b"a", b"", b"bc"]) == expected


@given(parts=st.lists(st.binary(max_size=300), max_size=5))
def test_digests_do_not_depend_on_the_division(parts: list[bytes]) -> None:
    """One pass over pieces gives, for all names, what each hash alone gives of the whole."""
    whole = b"".join(parts)
    found = digests(hash_names(), iter(parts))
    assert tuple(found) == hash_names()
    assert found == {name: digest(name, [whole]) for name in hash_names()}
    for name in set(hash_names()) & hashlib.algorithms_guaranteed:
        assert found[name] == hashlib.new(name, whole).hexdigest()


def test_arrays_count_as_their_bytes() -> None:
    """A buffer of any shape and item type is hashed as it lies in memory."""
    array = np.arange(12, dtype=np.uint16).reshape(3, 4)
    buffers: list[Buffer] = [array.data, np.empty((0, 2)).data, bytearray(b"x")]
    assert digest("sha256", buffers) == hashlib.sha256(array.tobytes() + b"x").hexdigest()


def test_a_hasher_may_be_read_between_updates() -> None:
    """Digests so far do not end the stream."""
    hasher = Hasher(["md5"])
    hasher.update(b"a")
    assert hasher.hexdigests() == digests(["md5"], [b"a"])
    hasher.update(b"bc")
    assert hasher.hexdigests() == {"md5": KNOWN_OF_ABC["md5"]}


def test_threads_hash_on_their_own() -> None:
    """Hashes of several threads do not mix."""
    blocks = [np.random.default_rng(n).bytes(200_000) for n in range(8)]
    alone = [digest("xxh3_128", [block]) for block in blocks]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda block: digest("xxh3_128", [block]), blocks)) == alone


def test_names_come_back_sorted_and_once() -> None:
    """The index wants them in sorted order; the user need not care."""
    assert check_hashes(["xxh64", "md5", "xxh64"]) == ("md5", "xxh64")
    assert check_hashes(()) == check_hashes(None) == ()


@pytest.mark.parametrize("names", [["md6"], ["md5", "MD5"], [""], ["xxh3-64"]])
def test_unknown_names_are_refused_with_the_valid_ones(names: list[str]) -> None:
    """The error names what came and what there is."""
    with pytest.raises(SchemaError, match=r"valid are blake2b, .*, xxh64$") as caught:
        check_hashes(names)
    assert repr(names[-1]) in str(caught.value)


def test_a_bare_text_is_no_list_of_names() -> None:
    """`hashes="md5"` would be three names of one letter."""
    with pytest.raises(SchemaError, match=r"give \['md5'\]"):
        check_hashes("md5")
