"""What holds of file systems of fsspec beyond the contract: finding them, options, versions."""

from __future__ import annotations

import builtins
import importlib
import os
import pickle
import subprocess
import sys
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.web import Said, WebServer

from streaming_core._store import _fsspec, _resolve, open_store
from streaming_core._store._fsspec import FsspecStore
from streaming_core._store._fsspec_files import etag_of
from streaming_core.errors import (
    AccessDeniedError,
    MissingExtraError,
    SchemaError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("fsspec")


@pytest.fixture
def name() -> Iterator[str]:
    """Return the name of a folder in fsspec's memory that is empty before and after."""
    name = uuid.uuid4().hex
    yield name
    files = importlib.import_module("fsspec").filesystem("memory")
    if files.exists(name):
        files.rm(name, recursive=True)


# --- from a URL to a store ------------------------------------------------------------------------


def test_a_scheme_that_only_fsspec_knows_is_its() -> None:
    """Without a word more; a scheme of our own is ours unless fsspec is named."""
    assert isinstance(open_store("ftp://someone:hunter2@host/a"), FsspecStore)
    assert not isinstance(open_store("memory://a"), FsspecStore)
    assert isinstance(open_store("fsspec+memory://a"), FsspecStore)
    assert isinstance(open_store("FSSPEC+memory://a"), FsspecStore)


def test_nothing_is_contacted_and_no_secret_shown() -> None:
    """Opening a URL of a host that is not there works; user and password stay within."""
    store = open_store("ftp://someone:hunter2@host.invalid/a?token=hunter2", {"tls": True})
    assert store.url == "ftp://host.invalid/a"
    for shown in (repr(store), str(pickle.dumps(store))):
        assert "hunter2" not in shown
    assert open_store(store.url) == store


def test_a_scheme_nobody_knows_names_the_extra() -> None:
    """Whether fsspec was named or not."""
    with pytest.raises(SchemaError, match=r"streaming-core\[fsspec\]"):
        open_store("gopher://host/a")
    with pytest.raises(SchemaError, match="fsspec knows no scheme 'gopher'"):
        open_store("fsspec+gopher://host/a")


def test_a_package_that_a_scheme_needs_is_named() -> None:
    """At once, not at the first request."""
    try:
        importlib.import_module("smbprotocol")
    except ImportError:
        with pytest.raises(MissingExtraError, match="smb"):
            open_store("smb://host/share")


def test_without_fsspec_a_scheme_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last resort is not there, and says how it would be."""
    real = builtins.__import__

    def refuse(module: str, *args: Any, **kwargs: Any) -> Any:
        if module.partition(".")[0] == "fsspec":
            raise ImportError(module)
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SchemaError, match=r"streaming-core\[fsspec\]"):
        open_store("ftp://host/a")
    with pytest.raises(MissingExtraError, match=r"streaming-core\[fsspec\]"):
        open_store("fsspec+memory://a")
    assert not _resolve._fsspec_knows("ftp")


# --- options --------------------------------------------------------------------------------------


def test_options_go_to_the_file_system_and_into_no_pickle(tmp_path: Path) -> None:
    """They are used as they are; a pickle says that they are missing, and has none of them."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"body")
    options = {"path": str(tmp_path), "target_protocol": "file"}
    store = open_store("dir://set", options)
    assert store.get("a") == b"body"
    data = pickle.dumps(store)
    assert str(tmp_path).encode() not in data
    with pytest.raises(AccessDeniedError, match="storage_options as a function"):
        pickle.loads(data).get("a")


def test_what_are_no_options_is_refused() -> None:
    """At once if they are given, at the first request if a function returns them."""
    wrong: Any = ["path"]
    with pytest.raises(SchemaError, match="came list"):
        open_store("fsspec+memory://a", wrong)
    store = open_store("fsspec+memory://a", lambda: wrong)
    with pytest.raises(SchemaError, match="came list"):
        store.get("a")


def test_options_are_asked_for_again_when_refused() -> None:
    """A web server that wants another token is asked once more with the fresh one."""
    tokens = iter(["stale", "fresh"])
    with WebServer() as server:
        server.files.put("a", b"body")
        server.answer = lambda asked: (
            None if asked.headers.get("authorization") == "fresh" else Said(403)
        )
        store = open_store(
            f"fsspec+{server.url}", lambda: {"headers": {"authorization": next(tokens)}}
        )
        assert store.get("a") == b"body"


@pytest.mark.parametrize(("status", "kind"), [(403, AccessDeniedError), (503, StoreBusyError)])
def test_refusals_of_a_web_server_are_typed(status: int, kind: type[StoreError]) -> None:
    """The error says which object of which store, and nothing of what the server or client said."""
    with WebServer(answer=lambda _: Said(status, b"hunter2")) as server:
        with pytest.raises(kind, match="get 'a' in") as caught:
            open_store(f"fsspec+{server.url}?key=hunter2").get("a")
        assert "hunter2" not in str(caught.value)


# --- versions -------------------------------------------------------------------------------------


def test_a_stream_of_many_blocks_is_of_one_version(name: str) -> None:
    """An object that is replaced between two blocks is an error before a byte of the new one."""
    store = open_store(f"fsspec+memory://{name}")
    old, new = bytes(20 << 20), b"\1" * (20 << 20)
    store.put("a", [old])
    got = bytearray()

    def read() -> None:
        with closing(store.stream("a")) as pieces:
            for number, piece in enumerate(pieces):
                got.extend(piece)
                if not number:
                    store.put("a", [new])

    with pytest.raises(StoreError, match="replaced meanwhile"):
        read()
    assert old.startswith(bytes(got))
    assert 0 < len(got) < len(old)


def test_a_server_that_ignores_ranges_is_an_error_not_wrong_bytes() -> None:
    """Fsspec hands over the whole object where a part was asked for; we look how long it is."""
    with WebServer(ranges=False) as server:
        server.files.put("a", b"0123456789")
        store = open_store(f"fsspec+{server.url}")
        with pytest.raises(StoreError):
            store.get_ranges("a", [(2, 4)])
        assert store.get("a") == b"0123456789"


@pytest.mark.parametrize(
    ("info", "etag"),
    [
        ({"ETag": '"1"', "etag": "2", "mtime": 3.0}, '"1"'),
        ({"etag": "2", "LastModified": 3.0}, "2"),
        ({"checksum": "c", "size": 1}, "c"),
        (
            {"Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT", "size": 1},
            "Sat, 21 Nov 2026 00:00:00 GMT-1",
        ),
        ({"mtime": 3.0, "ino": 7, "size": 1}, "3.0-7-1"),
        ({"ETag": "", "size": 1}, ""),
    ],
)
def test_the_etag_is_the_best_that_is_known(info: dict[str, object], etag: str) -> None:
    """A name of the version, else the time with the size; size alone names nothing."""
    assert etag_of(info) == etag


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.kill
def test_a_killed_writer_leaves_nothing_that_stays(tmp_path: Path) -> None:
    """Its half file is not listed, and gone after the next listing."""
    script = (
        "import os, signal, sys\n"
        "from streaming_core._store import open_store\n"
        "import fsspec.implementations.local as local\n"
        "local.LocalFileSystem.mv = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "open_store(sys.argv[1]).put('part/a', [bytes(1 << 20)])\n"
    )
    url = f"fsspec+file://{tmp_path}/set"
    done = subprocess.run([sys.executable, "-c", script, url], check=False, timeout=60)
    assert done.returncode < 0
    (left,) = os.listdir(tmp_path / "set" / "part")  # noqa: PTH208
    assert left.startswith(".a.")
    assert list(open_store(url).list()) == []
    assert os.listdir(tmp_path / "set" / "part") == []  # noqa: PTH208


@pytest.mark.parametrize("fails", ["link", "mv"])
def test_a_put_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """What the file system raises becomes one of our errors, and the half file is removed."""
    local = importlib.import_module("fsspec.implementations.local")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local.LocalFileSystem, fails, fail)
    store = open_store(f"fsspec+file://{tmp_path}/set")
    with pytest.raises(StoreError, match=r"put 'a' in .* No space left on device"):
        store.put("a", [b"body"], if_absent=fails == "link")
    assert os.listdir(tmp_path / "set") == []  # noqa: PTH208


def test_the_factory_is_what_the_table_names() -> None:
    """The function that `open_store` finds by name gives the store of the URL."""
    factory: Callable[[str], FsspecStore] = _fsspec.fsspec_from_url
    assert factory("fsspec+memory://a/b").url == "fsspec+memory://a/b"


def test_a_web_server_that_is_not_there_is_not_a_missing_object() -> None:
    """Fsspec says that there is no such file; asking again may help, so that is not said on."""
    with WebServer() as server:
        url = server.url
    with pytest.raises(StoreError) as caught:
        open_store(f"fsspec+{url}").get("a")
    assert caught.value.kind == "store"


def test_a_busy_web_server_says_for_how_long() -> None:
    """Its `Retry-After` reaches the rule for trying again."""
    with (
        WebServer(answer=lambda _: Said(503, b"", {"Retry-After": "7"})) as server,
        pytest.raises(StoreBusyError) as caught,
    ):
        open_store(f"fsspec+{server.url}").get("a")
    assert caught.value.retry_after == 7.0
