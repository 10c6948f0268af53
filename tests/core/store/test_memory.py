"""The in-memory store: the contract, and who shares what."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import pytest
from tests.core.store.contract import MarkedContract

from streaming_core._store import MemoryStore, open_store
from streaming_core.errors import ObjectNotFoundError, SchemaError

_UNSUPPORTED = {"shared-between-processes": "the objects live in the memory of one process"}


@pytest.mark.essential
class TestAnonymous(MarkedContract):
    """A store without a name keeps the contract."""

    unsupported = _UNSUPPORTED

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return a fresh store."""
        return MemoryStore()


class TestNamed(MarkedContract):
    """A named store keeps the contract."""

    unsupported = _UNSUPPORTED

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> MemoryStore:
        """Return the store named after the test, emptied."""
        store = MemoryStore(f"test-{request.node.name[:40].encode().hex()}")
        for info in store.list():
            store.delete(info.key)
        return store


def test_one_name_is_one_store() -> None:
    """Whoever names a store finds what others put under that name."""
    MemoryStore("shared").put("part/a", [b"body"])
    assert MemoryStore("shared").get("part/a") == b"body"
    assert open_store("memory://shared/part").get("a") == b"body"
    assert MemoryStore("shared") == open_store("memory://shared")


def test_stores_without_a_name_share_nothing() -> None:
    """Two anonymous stores differ and do not see each other's objects."""
    first, second = MemoryStore(), MemoryStore()
    first.put("a", [b"body"])
    assert first != second
    with pytest.raises(ObjectNotFoundError):
        second.get("a")


def test_a_named_store_pickles_as_its_name() -> None:
    """The pickle of a named store carries no content, and loads to the same store."""
    store = MemoryStore("pickled-by-name")
    store.put("a", [b"x" * 100_000])
    data = pickle.dumps(store)
    assert len(data) < 1000
    store.put("b", [b"later"])
    assert pickle.loads(data).get("b") == b"later"


@pytest.mark.process
def test_an_anonymous_store_travels_to_another_process_with_its_content() -> None:
    """A fresh process that loads the pickle finds the objects, also through a child."""
    store = MemoryStore()
    store.put("part/a", [b"body"])
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('a').decode())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(store.child("part")),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == b"body"


def test_an_anonymous_store_ends_with_its_last_user() -> None:
    """Its URL works while it is in use, and is refused with the reason afterwards."""
    store = MemoryStore()
    url = store.url
    assert open_store(url) == store
    del store
    gc.collect()
    with pytest.raises(SchemaError, match="no longer in use"):
        open_store(url)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\0"])
def test_refuses_what_is_no_name(name: str) -> None:
    """A name must be one safe part, because it goes into URLs."""
    with pytest.raises(SchemaError, match="no name for a memory store"):
        MemoryStore(name)
