"""What is Azure's own: blocks, checksums, folders of namespaces, pages; on the emulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.faults import Cut, Flip
from tests.servers.proxy import Proxy

from streaming_core import open_store
from streaming_core._store._azure import _store as module
from streaming_core.errors import AlreadyExistsError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from azure.storage.blob import ContainerClient
    from tests.servers.azure import Azurite

    from streaming_core._store import Store

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("azurite")]

_LARGE = os.urandom(1 << 20) * 25  # four blocks, the last of one MiB


@pytest.fixture
def store(emulator: Azurite, container: ContainerClient) -> Store:
    """Return the store of the container."""
    return open_store(f"az://{container.container_name}", _options(emulator))


def _options(emulator: Azurite) -> dict[str, str]:
    return {"connection_string": emulator.connection_string}


# --- the same objects as Azure's own client -------------------------------------------------------


@pytest.mark.essential
@pytest.mark.parametrize("body", [b"", b"small", _LARGE], ids=["empty", "small", "large"])
def test_both_clients_read_what_the_other_wrote(
    store: Store, container: ContainerClient, body: bytes
) -> None:
    """Objects, sizes and etags are the same for Azure's client and for us."""
    ours = store.put("folder/ä b+c%20#?", [body[:7], body[7:]])
    blob = container.get_blob_client("folder/ä b+c%20#?")
    assert blob.download_blob().readall() == body
    assert (blob.get_blob_properties().etag, blob.get_blob_properties().size) == (
        ours.etag,
        len(body),
    )
    container.upload_blob("theirs", body)
    assert store.get("theirs") == body
    assert (
        store.head("theirs").etag == container.get_blob_client("theirs").get_blob_properties().etag
    )
    assert [info.key for info in store.list()] == [
        str(name) for name in sorted(container.list_blob_names())
    ]


def test_pages_are_joined_and_sorted(
    store: Store, container: ContainerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of many pages has each object once, in the order of the contract."""
    monkeypatch.setattr(module, "_PAGE_NAMES", 7)
    keys = [f"{folder}{number}" for number in range(20) for folder in ("a/", "a-", "ä/", "A.")]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: container.upload_blob(key, b""), keys))
    assert [info.key for info in store.list()] == sorted(keys)
    assert [info.key for info in store.list("a/1")] == sorted(
        key for key in keys if key.startswith("a/1")
    )


def test_folders_of_namespaces_are_no_objects(store: Store, container: ContainerClient) -> None:
    """What stands for a folder is neither listed nor read, and hinders nothing below it."""
    for name in ("folder", "folder/deep"):
        container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})
    container.upload_blob("console/", b"")
    store.put("folder/deep/a", [b"body"])
    assert [info.key for info in store.list()] == ["folder/deep/a"]
    for verb in (store.get, store.head, lambda key: store.get_ranges(key, [(0, None)])):
        with pytest.raises(ObjectNotFoundError, match="a folder, and no object"):
            verb("folder")
    assert store.get("folder/deep/a") == b"body"


# --- large blobs ----------------------------------------------------------------------------------


_MEASURED = """
import resource, sys
from streaming_core import open_store

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

store = open_store(sys.argv[1])
store.put("small", [b"body"])
body = bytes(160 << 20)  # which takes no memory, unless somebody copies it
before = peak()
store.put("large", [body])
print((peak() - before) * (1 if sys.platform == "darwin" else 1024))
"""


def test_a_large_blob_needs_no_second_copy_of_it(emulator: Azurite, store: Store) -> None:
    """While 160 MiB are sent the process grows by much less."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, store.url],
        env={**os.environ, "AZURE_STORAGE_CONNECTION_STRING": emulator.connection_string},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert int(done.stdout) < 48 << 20
    assert store.head("large").size == 160 << 20


@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_upload_leaves_nothing_visible(
    store: Store, container: ContainerClient, monkeypatch: pytest.MonkeyPatch, *, existed: bool
) -> None:
    """A block that arrives damaged is refused by the service, and the blob is as it was before."""
    if existed:
        store.put("a", [b"before"])
    calls: list[object] = []
    right = module._md5

    def wrong(views: Sequence[memoryview]) -> str:
        calls.append(views)
        return right([memoryview(b"other")]) if len(calls) == 3 else right(views)

    monkeypatch.setattr(module, "_md5", wrong)
    with pytest.raises(StoreError, match=r"(?i)put 'a' in .*md5"):
        store.put("a", [_LARGE])
    listed = [(info.key, info.size) for info in store.list()]
    assert listed == ([("a", len(b"before"))] if existed else [])
    assert container.get_blob_client("a").exists() is existed
    store.put("a", [_LARGE])
    assert store.get("a") == _LARGE


def test_a_small_blob_that_was_damaged_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service compares the checksum of blobs that are sent in one request as well."""
    monkeypatch.setattr(module, "_md5", lambda _: "AAAAAAAAAAAAAAAAAAAAAA==")
    with pytest.raises(StoreError, match=r"(?i)md5"):
        store.put("a", [b"body"])
    assert list(store.list()) == []


_KILLED = """
import os, signal, sys
from streaming_core import open_store
from streaming_core._store._azure import AzureStore
from streaming_core._store._http import Gate

left = [int(sys.argv[2])]
send = Gate.send

def counted(self, call):
    answer = send(self, call)
    if call.method == "PUT":
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer

Gate.send = counted
store = open_store(sys.argv[1])
store.put("large", [bytes(25 << 20)], if_absent=sys.argv[3] == "new")
"""


@pytest.mark.kill
@pytest.mark.parametrize("moment", [1, 2, 4, 5])
@pytest.mark.parametrize("how", ["new", "over"])
def test_a_killed_upload_leaves_nothing_and_a_rerun_succeeds(
    emulator: Azurite, store: Store, container: ContainerClient, moment: int, how: str
) -> None:
    """Killed after any block there is no blob; killed after the last request there is the whole."""
    command = [sys.executable, "-c", _KILLED, store.url, str(moment), how]
    env = {**os.environ, "AZURE_STORAGE_CONNECTION_STRING": emulator.connection_string}
    done = subprocess.run(command, env=env, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    whole = [("large", 25 << 20)]
    assert [(info.key, info.size) for info in store.list()] == (whole if moment == 5 else [])
    blocks = container.get_blob_client("large").get_block_list("all") if moment < 5 else ([], [])
    assert len(blocks[0]) == 0
    assert moment == 5 or len(blocks[1]) >= moment
    if (how, moment) == ("new", 5):
        with pytest.raises(AlreadyExistsError):
            store.put("large", [_LARGE], if_absent=True)
        return
    store.put("large", [_LARGE], if_absent=how == "new")
    assert store.get("large") == _LARGE
    committed, uncommitted = container.get_blob_client("large").get_block_list("all")
    assert (len(committed), len(uncommitted)) == (4, 0)


def test_unfinished_blocks_of_azures_client_hinder_nothing(
    store: Store, emulator: Azurite, container: ContainerClient
) -> None:
    """Where its upload was killed ours succeeds: names of blocks have the same length."""
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient.from_connection_string(
        emulator.connection_string, max_block_size=1 << 20, max_single_put_size=1 << 10
    ) as service:
        blob = service.get_blob_client(container.container_name, "a")
        blob.upload_blob(bytes(3 << 20))
        name = blob.get_block_list("committed")[0][0].id
        container.delete_blob("a")
        blob.stage_block(name, b"left behind")
    store.put("a", [_LARGE])
    assert store.get("a") == _LARGE


def test_unfinished_blocks_of_another_program_are_named_as_the_cause(
    store: Store, container: ContainerClient
) -> None:
    """Azure refuses blocks with names of another length; the error says what that means."""
    container.get_blob_client("a").stage_block("short", b"left behind")
    with pytest.raises(StoreError, match=r"InvalidBlobOrBlock.*another program"):
        store.put("a", [_LARGE])


def test_uploads_of_one_name_never_mix(store: Store) -> None:
    """Of uploads at once one wins whole; the others win later, or are told to try again."""
    bodies = [bytes([number]) * (17 << 20) for number in range(4)]

    def put(body: bytes) -> StoreError | None:
        try:
            store.put("a", [body])
        except StoreError as error:
            return error
        return None

    with ThreadPoolExecutor(4) as pool:
        errors = [error for error in pool.map(put, bodies) if error is not None]
    assert len(errors) < 4
    assert all("InvalidBlockList" in str(error) for error in errors)
    assert store.get("a") in bodies


def test_of_large_creations_one_wins(store: Store) -> None:
    """Who comes later finds the object, whether its blocks were discarded or not."""
    bodies = [bytes([number]) * (17 << 20) for number in range(4)]

    def create(body: bytes) -> bool:
        try:
            store.put("a", [body], if_absent=True)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(create, bodies))
    assert won.count(True) == 1
    assert store.get("a") == bodies[won.index(True)]


def test_snapshots_do_not_keep_a_blob(store: Store, container: ContainerClient) -> None:
    """A blob is deleted together with its snapshots."""
    store.put("a", [b"body"])
    container.get_blob_client("a").create_snapshot()
    store.delete("a")
    assert list(store.list()) == []


# --- what is missing, and the way there -----------------------------------------------------------


def test_a_missing_container_is_not_a_missing_object(emulator: Azurite) -> None:
    """The error names account and container and how URLs are written; it is no 'not found'."""
    store = open_store("az://nothing-here/folder", _options(emulator))
    verbs: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: list(store.list()),
        lambda: store.put("a", [b"body"]),
        lambda: store.delete("a"),
    ]
    for verb in verbs:
        with pytest.raises(StoreError, match=r"'teststore' has no container 'nothing-here'") as got:
            verb()
        assert not isinstance(got.value, ObjectNotFoundError)


def test_a_range_is_of_one_version(
    emulator: Azurite, container: ContainerClient, store: Store
) -> None:
    """A blob that is replaced between the parts of one read is noticed."""
    store.put("a", [bytes(1 << 20)])
    with Proxy(emulator.endpoint) as proxy:
        slow = open_store(
            f"az://{container.container_name}",
            {
                "endpoint_url": f"{proxy.url}/{emulator.account}",
                "account_key": emulator.key,
            },
        )
        assert slow.get_ranges("a", [(0, 4), (1 << 19, None)])[0] == bytes(4)
        proxy.hurt(Cut(10), first=1)
        with pytest.raises(StoreError, match=r"get 'a'.*before its announced end"):
            slow.get("a")
        rule = proxy.hurt(Flip(0), first=1)
        assert slow.get("a") != bytes(1 << 20)
        assert rule.num_done == 1


def test_blocks_may_be_any_bytes(container: ContainerClient, store: Store) -> None:
    """What Azure's client composes of blocks of odd sizes is one object for us."""
    from azure.storage.blob import BlobBlock

    blob = container.get_blob_client("a")
    for name in ("1", "2", "3"):
        blob.stage_block(name, name.encode() * int(name))
    blob.commit_block_list([BlobBlock("3"), BlobBlock("1"), BlobBlock("2")])
    assert store.get("a") == b"333122"
