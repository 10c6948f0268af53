"""The stores of Databricks, against a workspace in this process."""

from __future__ import annotations

import pickle
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.databricks import Workspace
from tests.servers.ranged import said_json
from tests.servers.web import Said

from streaming_core import MDSWriter, StreamingDataset
from streaming_core._store import RequestPolicy, open_store
from streaming_core._store._databricks import DbfsStore, VolumeStore, databricks_from_url
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    MissingExtraError,
    SchemaError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_core._store import Store

_VOLUME = "dbfs:/Volumes/main/default/data/folder"
_DBFS = "dbfs:/tmp/folder"
_URLS = pytest.mark.parametrize("url", [_VOLUME, _DBFS], ids=["volume", "dbfs"])
_LARGE = bytes(range(256)) * (3 * 4096 + 1)  # 3 MiB and a bit


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    """Give a workspace, and an environment that knows of none."""
    for name in ("HOST", "TOKEN", "CONFIG_PROFILE", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "databrickscfg"))
    with Workspace() as running:
        yield running


@pytest.fixture
def known(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Give a workspace that the environment knows."""
    monkeypatch.setenv("DATABRICKS_HOST", workspace.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", workspace.token)
    return workspace


def _store(workspace: Workspace, url: str) -> VolumeStore | DbfsStore:
    return databricks_from_url(url, {"host": workspace.url, "token": workspace.token})


@pytest.mark.slow
class TestVolumeContract(MarkedContract):
    """The contract, by files of a volume."""

    unsupported = {  # noqa: RUF012 - as the base has it
        "etag-of-each-write": "the service names no versions, and gives times in whole seconds"
    }

    @pytest.fixture
    def store(self, known: Workspace) -> Store:
        """Give the store of a folder that does not exist."""
        del known
        return open_store(_VOLUME)


@pytest.mark.slow
class TestDbfsContract(MarkedContract):
    """The contract, by files of DBFS."""

    unsupported: ClassVar = {
        "etag-of-each-write": "the service gives no versions, and times in whole milliseconds"
    }

    @pytest.fixture
    def store(self, known: Workspace) -> Store:
        """Give the store of a folder that does not exist."""
        del known
        return open_store(_DBFS)


# --- places ---------------------------------------------------------------------------------------


def test_the_path_tells_which_service_is_meant(workspace: Workspace) -> None:
    """What lies below /Volumes is a volume; all URLs round-trip."""
    options = {"host": workspace.url, "token": "t"}
    for url, kind in ((_VOLUME, VolumeStore), (_DBFS, DbfsStore), ("dbfs:///mnt/x/", DbfsStore)):
        store = open_store(url, options)
        assert isinstance(store, kind)
        assert open_store(store.url, options) == store
    assert open_store("dbfs:///mnt/x/", options).url == "dbfs:/mnt/x"


@pytest.mark.parametrize("url", ["dbfs:/", "dbfs:/Volumes/a/b", "dbfs:/a/../b"])
def test_a_url_without_a_folder_is_refused(url: str) -> None:
    """The error shows how it is written."""
    with pytest.raises(SchemaError, match="dbfs:/Volumes/<catalog>"):
        open_store(url, {"host": "https://example.org"})


def test_without_a_workspace_nothing_begins(workspace: Workspace) -> None:
    """The error says how to name one; an address that is none is refused as well."""
    del workspace
    with pytest.raises(SchemaError, match="DATABRICKS_HOST"):
        open_store(_VOLUME)
    with pytest.raises(SchemaError, match="cannot be used"):
        open_store(_VOLUME, {"host": "ftp://x"})


# --- credentials ----------------------------------------------------------------------------------


@pytest.mark.slow
@_URLS
def test_environment_and_profile_say_who_we_are(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Host and token come from the environment, or from a profile; never from two workspaces."""
    path = "/" + url.removeprefix("dbfs:/") + "/a"
    workspace.put(path, b"body")
    lines = [
        "[DEFAULT]\nhost = https://other.example.org\ntoken = others",
        f"[work]\nhost = {workspace.url}/\ntoken = {workspace.token}",
    ]
    (tmp_path / "databrickscfg").write_text("\n".join(lines))
    assert open_store(url, {"profile": "work"}).get("a") == b"body"
    monkeypatch.setenv("DATABRICKS_HOST", workspace.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", workspace.token)
    assert open_store(url).get("a") == b"body"
    monkeypatch.delenv("DATABRICKS_TOKEN")
    with pytest.raises(AccessDeniedError, match="nothing says who we are"):
        open_store(url).get("a")


@pytest.mark.slow
@_URLS
def test_a_client_secret_signs_in_through_the_sdk(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token Databricks' package is asked, once; a token that ran out is replaced."""
    workspace.put("/" + url.removeprefix("dbfs:/") + "/a", b"body")
    monkeypatch.setenv("DATABRICKS_HOST", workspace.url)
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", "robot")
    monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", workspace.secret)
    store = open_store(url)
    for _ in range(3):
        assert store.get("a") == b"body"
    assert workspace.signed_in == 1
    workspace.token = "another"  # noqa: S105 - of a server in this process
    assert store.get("a") == b"body"
    assert workspace.signed_in == 2


def test_without_token_and_sdk_the_extra_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package that would know other ways."""
    monkeypatch.setitem(sys.modules, "databricks.sdk.core", None)
    with pytest.raises(MissingExtraError, match=r"streaming-core\[databricks\]"):
        open_store(_VOLUME, {"host": workspace.url}).get("a")


@_URLS
def test_a_token_that_ran_out_is_asked_for_again(workspace: Workspace, url: str) -> None:
    """A function's next answer is used when the workspace refuses; no secret leaves the process."""
    store = databricks_from_url(url, lambda: {"host": workspace.url, "token": workspace.token})
    store.put("a", [b"body"])
    workspace.token = "another"  # noqa: S105 - of a server in this process
    assert store.get("a") == b"body"
    given = databricks_from_url(url, {"host": workspace.url, "token": "dapi-secret"})
    with pytest.raises(AccessDeniedError, match="UNAUTHENTICATED") as caught:
        given.get("a")
    assert "dapi-secret" not in repr(given) + given.url + str(caught.value)
    assert b"dapi-secret" not in pickle.dumps(given)


# --- reading and writing --------------------------------------------------------------------------


@_URLS
def test_a_busy_workspace_is_told_and_retried(workspace: Workspace, url: str) -> None:
    """A 429 is `StoreBusyError` with its time; a retry goes on."""
    store = _store(workspace, url)
    store.put("a", [b"body"])
    workspace.failing = [Said(429, b"{}", {"Retry-After": "3"})]
    with pytest.raises(StoreBusyError) as caught:
        store.get("a")
    assert caught.value.retry_after == 3
    workspace.failing = [Said(503)]
    assert RequestPolicy(2, first_pause=0.01).call(lambda: store.get("a")) == b"body"


@_URLS
def test_what_is_no_listing_is_an_error(workspace: Workspace, url: str) -> None:
    """A page of HTML with status 200 is no empty folder."""
    workspace.failing = [Said(200, b"<html>")]
    with pytest.raises(StoreError):
        list(_store(workspace, url).list())


def test_a_large_file_of_dbfs_appears_whole(workspace: Workspace) -> None:
    """It is written aside in pieces, then moved; a failure on the way leaves nothing."""
    store = _store(workspace, _DBFS)
    seen: list[Any] = []
    serve = workspace.web.answer
    assert serve is not None

    def watch(asked: Any) -> Said | None:
        if asked.path.endswith("/add-block"):
            seen.append(([*open_store_again.list()], workspace.files.get("/tmp/folder/a")))  # noqa: S108 - of a server
        return serve(asked)

    open_store_again: Store = _store(workspace, _DBFS)
    workspace.web.answer = watch
    store.put("a", [_LARGE], if_absent=True)
    assert seen == [([], None)] * 4
    workspace.web.answer = serve
    assert (store.get("a"), [info.size for info in store.list()]) == (_LARGE, [len(_LARGE)])
    with pytest.raises(AlreadyExistsError):
        store.put("a", [_LARGE[::-1]], if_absent=True)
    store.put("a", [_LARGE[::-1]])
    assert store.get("a") == _LARGE[::-1]
    assert [*workspace.files] == ["/tmp/folder/a"]  # noqa: S108 - as above


def test_a_failed_upload_to_dbfs_leaves_nothing(workspace: Workspace) -> None:
    """An error in the middle removes what was written aside."""
    store = _store(workspace, _DBFS)
    serve = workspace.web.answer
    assert serve is not None
    blocks = iter(range(10))

    def break_down(asked: Any) -> Said | None:
        if asked.path.endswith("/add-block") and next(blocks) == 2:
            return said_json({"error_code": "INTERNAL_ERROR", "message": "broken"}, 500)
        return serve(asked)

    workspace.web.answer = break_down
    with pytest.raises(StoreError, match="INTERNAL_ERROR"):
        store.put("a", [_LARGE])
    assert workspace.files == {}


def test_a_file_of_a_volume_tells_its_version_once_it_is_old_enough(workspace: Workspace) -> None:
    """Times in whole seconds cannot tell versions of one second, so young files name none."""
    store = _store(workspace, _VOLUME)
    info = store.put("a", [b"0123456789"])
    assert store.get_ranges("a", [(0, 2)]).etag == ""
    path = "/Volumes/main/default/data/folder/a"
    workspace.files[path] = workspace.files[path]._replace(changed=1_700_000_000_999)
    info = store.head("a")
    assert info.etag == "1700000000-10"
    assert store.get_ranges("a", [(0, 2)]).etag == store.get_ranges("a", [(-2, None)]).etag
    assert store.get_ranges("a", [(0, 2)]).etag == info.etag
    assert [*store.list()] == [info]


def test_a_file_of_dbfs_that_is_replaced_on_the_way_is_an_error(workspace: Workspace) -> None:
    """What takes many requests is never of two versions: bytes of the old, then an error."""
    store = _store(workspace, _DBFS)
    old = _LARGE * 3
    workspace.put("/tmp/folder/a", old)  # noqa: S108 - of a server
    got = b""
    with closing(store.stream("a")) as pieces:
        got += next(pieces)
        workspace.put("/tmp/folder/a", old[::-1])  # noqa: S108 - as above
        while len(got) < 8 << 20:  # these were read before
            got += next(pieces)
        with pytest.raises(StoreError, match="replaced meanwhile"):
            next(pieces)
    assert old.startswith(got)
    assert store.get("a") == old[::-1]


def test_small_reads_of_dbfs_take_one_request(workspace: Workspace) -> None:
    """A small file, and ranges near each other, are read by one request."""
    store = _store(workspace, _DBFS)
    store.put("a", [b"0123456789"])
    before = workspace.web.count()
    assert store.get("a") == b"0123456789"
    assert store.get_ranges("a", [(0, 2), (5, 7)]) == [b"01", b"56"]
    assert workspace.web.count() == before + 2


# --- the service's own client ---------------------------------------------------------------------


@pytest.mark.slow
def test_agrees_with_the_sdk(workspace: Workspace) -> None:
    """What we put, Databricks' package reads, and the other way round."""
    from databricks.sdk import WorkspaceClient

    client = WorkspaceClient(host=workspace.url, token=workspace.token)
    volume, dbfs = _store(workspace, _VOLUME), _store(workspace, _DBFS)
    volume.put("deep/ä b", [_LARGE])
    path = "/Volumes/main/default/data/folder"
    with client.files.download(f"{path}/deep/ä b").contents as body:  # type: ignore[union-attr]
        assert body.read() == _LARGE
    found = client.files.list_directory_contents(f"{path}/deep")
    listed = [(entry.name, entry.file_size) for entry in found]
    assert listed == [("ä b", len(_LARGE))]
    dbfs.put("deep/large", [_LARGE])
    with client.dbfs.download("/tmp/folder/deep/large") as body:  # noqa: S108 - of a server
        assert body.read() == _LARGE
    with client.dbfs.open("/tmp/folder/theirs", write=True) as out:  # noqa: S108 - as above
        out.write(_LARGE)
    assert dbfs.get("theirs") == _LARGE
    assert [info.key for info in dbfs.list()] == ["deep/large", "theirs"]


# --- a data set -----------------------------------------------------------------------------------


@_URLS
@pytest.mark.usefixtures("known")
def test_a_data_set_is_written_and_read(url: str, tmp_path: Path) -> None:
    """What the writer puts, shards and index, a reader streams."""
    samples = [{"text": f"sample {i}", "body": bytes([i]) * 20_000} for i in range(100)]
    columns = {"text": "str", "body": "bytes"}
    with MDSWriter(out=f"{url}/train", columns=columns, size_limit=1 << 20) as out:
        for sample in samples:
            out.write(sample)
    local = str(tmp_path / "cache")
    data = StreamingDataset(remote=f"{url}/train", local=local, shuffle=False, batch_size=1)
    assert [dict(sample) for sample in data] == samples
