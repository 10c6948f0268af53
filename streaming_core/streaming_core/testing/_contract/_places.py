"""What holds of places: listings, children, keys from outside, identity."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING

import pytest

from streaming_core.errors import (
    ObjectNotFoundError,
    StoreError,
    UnsafeKeyError,
)
from streaming_core.testing._contract._abilities import Abilities
from streaming_core.testing._contract._requests import REQUESTS

if TYPE_CHECKING:
    from streaming_core._store import Store

__all__ = ["PlaceContract"]

_HOSTILE_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../outside",
    "a/../../outside",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "a\\b",
    "C:/a",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "\ud800",
    "x" * 256,
    "/".join(["deep"] * 300),
]


class PlaceContract(Abilities):
    """Tests of places."""

    # --- listing and children ---------------------------------------------------------------------

    def test_lists_in_key_order(self, store: Store) -> None:
        """Keys come sorted as whole texts, whatever folders they lie in."""
        self.require("list")
        keys = ["a-b", "a.b", "a/z", "a/b/c", "a0", "B", "b/1", "b/10", "b/2", "ä", "z"]
        for key in keys:
            store.put(key, [key.encode()])
        assert [info.key for info in store.list()] == sorted(keys)

    def test_lists_by_prefix(self, store: Store) -> None:
        """A prefix is plain text: it may end inside a name, and need not name a folder."""
        self.require("list")
        for key in ("part-0/a", "part-0/deep/b", "part-1/a", "part.txt", "other", ".hidden/x"):
            store.put(key, [b"body"])
        expected = {
            "part": ["part-0/a", "part-0/deep/b", "part-1/a", "part.txt"],
            "part-0/": ["part-0/a", "part-0/deep/b"],
            "part-0": ["part-0/a", "part-0/deep/b"],
            "part-0/d": ["part-0/deep/b"],
            "part-0/a": ["part-0/a"],
            "part-0/a/": [],
            ".": [".hidden/x"],
            "absent/": [],
        }
        assert {
            prefix: [info.key for info in store.list(prefix)] for prefix in expected
        } == expected

    def test_listing_forgets_what_was_deleted(self, store: Store) -> None:
        """A deleted object, and a folder that lost its last one, are not listed."""
        self.require("list")
        for key in ("a", "folder/b", "folder/c"):
            store.put(key, [b"body"])
        store.delete("folder/b")
        assert [info.key for info in store.list()] == ["a", "folder/c"]
        store.delete("folder/c")
        assert [info.key for info in store.list()] == ["a"]

    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        """A place where nothing was ever put is empty; a store that cannot list says so instead."""
        for place in (store, store.child("never/made")):
            if "list" in self.unsupported:
                with pytest.raises(StoreError, match="list in"):
                    list(place.list())
            else:
                assert list(place.list()) == []

    def test_a_child_is_the_same_store_deeper(self, store: Store) -> None:
        """What a child puts lies below its prefix; its keys are relative to it, both ways."""
        child = store.child("part-0").child("deep")
        info = child.put("a", [b"body"])
        store.put("part-0/deep/b", [b"other"])
        store.put("part-0/deeper", [b"beside"])
        assert info.key == "a"
        self.assert_holds(child, ["a", "b"])
        assert (store.get("part-0/deep/a"), child.get("b")) == (b"body", b"other")
        assert child == store.child("part-0/deep")
        assert child != store
        child.delete("b")
        with pytest.raises(ObjectNotFoundError):
            store.get("part-0/deep/b")

    # --- keys from outside ------------------------------------------------------------------------

    def test_refuses_hostile_keys(self, store: Store) -> None:
        """Every verb refuses every key that is not a safe relative name, and changes nothing."""
        store.put("a", [b"body"])
        problems: list[str] = []
        for (verb, request), key in itertools.product(REQUESTS.items(), _HOSTILE_KEYS):
            try:
                request(store, key)
            except UnsafeKeyError:
                continue
            except Exception as error:  # noqa: BLE001 - reported with the others
                problems.append(f"{verb} {key!a}: {type(error).__name__}: {error}")
            else:
                problems.append(f"{verb} {key!a}: accepted")
        assert not problems, "\n".join(problems)
        self.assert_holds(store, ["a"])
        assert store.get("a") == b"body"

    def test_refuses_hostile_prefixes(self, store: Store) -> None:
        """A prefix that no safe name starts with is refused at the call, not while listing."""
        for prefix in ("/", "../", "a/../", "a//", "a\\", "\0"):
            with pytest.raises(UnsafeKeyError):
                pytest.fail(f"{prefix!a} gave {store.list(prefix)}")

    # --- identity ---------------------------------------------------------------------------------

    def test_pickles(self, store: Store) -> None:
        """A copy made by pickle equals the store, hashes alike and sees its objects."""
        store.put("part/a", [b"body"])
        copy: Store = pickle.loads(pickle.dumps(store))  # noqa: S301 - made one line above
        assert (copy == store, hash(copy) == hash(store), copy.url) == (True, True, store.url)
        assert copy.get("part/a") == b"body"
        child: Store = pickle.loads(pickle.dumps(store.child("part")))  # noqa: S301 - as above
        assert child == store.child("part")
        assert child.get("a") == b"body"

    def test_compares_by_kind_and_root(self, store: Store) -> None:
        """Stores of one root are one key of a dictionary; those of other roots are others."""
        stores = {store, store.child("a"), store.child("a"), store.child("b")}
        assert stores == {store, store.child("a"), store.child("b")}
        assert len(stores) == len({store.url for store in stores})
        assert store.child("a") != store.child("b")
        assert store != object()
        assert store.url in repr(store) or type(store).__name__ in repr(store)
