"""From URL or path to store."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from streaming_core._store import LocalStore, MemoryStore, open_store, public_url, register_store
from streaming_core._store import _resolve as resolve
from streaming_core.errors import MissingExtraError, SchemaError


@pytest.fixture(autouse=True)
def _own_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test what it registered."""
    monkeypatch.setattr(resolve, "_registered", {})


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/data/set", "/data/set"),
        ("/data/100%20 #1?x", "/data/100%20 #1?x"),
        (Path("/data/set"), "/data/set"),
        (Path("s3:/bucket"), "s3:/bucket"),
        ("relative/set", "relative/set"),
        ("./s3:/bucket", "s3:/bucket"),
        ("C:/data", "C:/data"),
        ("c:\\data", "c:\\data"),
        ("with:colon", "with:colon"),
        ("file:///data/my%20set", "/data/my set"),
        ("FILE:///data", "/data"),
        ("file://localhost/data", "/data"),
        ("file:/data", "/data"),
        ("file:///data/%C3%A4", "/data/ä"),
    ],
)
def test_paths_and_file_urls_are_folders(place: str | Path, path: str) -> None:
    """What has no scheme is a path as it stands; a `file:` URL is decoded."""
    assert open_store(place) == LocalStore(path)


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder named `~` is made by accident."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert open_store("~/set") == LocalStore("/home/someone/set")


@pytest.mark.parametrize("path", ["/data/a b", "/ä/数据", "/100%/#?&", "/x/\udcff"], ids=ascii)
def test_a_local_url_leads_back(path: str) -> None:
    """`open_store(store.url)` is the store, whatever characters its path has."""
    assert open_store(LocalStore(path).url) == LocalStore(path)


def test_memory_urls_name_stores_and_children() -> None:
    """The first part is the name, the rest the prefix."""
    assert open_store("memory://resolve") == MemoryStore("resolve")
    assert open_store("memory://resolve/a/b/") == MemoryStore("resolve").child("a/b")
    with pytest.raises(SchemaError):
        open_store("memory://")


@pytest.mark.parametrize("place", ["file://server/share", "file://relative"])
def test_a_file_url_of_another_host_is_refused(place: str) -> None:
    """It would silently become a local folder otherwise."""
    with pytest.raises(SchemaError, match="no folder of this machine"):
        open_store(place)


def test_nowhere_is_refused() -> None:
    """An empty text is not the current folder."""
    with pytest.raises(SchemaError, match="empty"):
        open_store("")


@pytest.mark.parametrize("place", ["gopher://user:hunter2@host/x?sig=hunter2", "gopher:/host/x"])
def test_an_unknown_scheme_lists_the_known_ones_and_no_secret(place: str) -> None:
    """The message helps on, and leaves out user, password and query."""
    register_store("mine", lambda _: MemoryStore("mine"))
    with pytest.raises(SchemaError) as caught:
        open_store(place)
    message = str(caught.value)
    for wanted in ("'gopher'", "file://", "memory://", "mine://", "register_store('gopher'"):
        assert wanted in message
    assert "hunter2" not in message


def test_a_registered_factory_gets_the_whole_url() -> None:
    """The factory sees the URL as it was given; the scheme is matched in any case."""
    seen: list[str] = []

    def factory(url: str) -> MemoryStore:
        seen.append(url)
        return MemoryStore("registered")

    register_store("mine", factory)
    assert open_store("MINE://Host/path?x=1") == MemoryStore("registered")
    assert seen == ["MINE://Host/path?x=1"]


@pytest.mark.parametrize("scheme", ["", "c", "S3", "mine://", "1a", "a b"])
def test_refuses_to_register_what_is_no_scheme(scheme: str) -> None:
    """One letter would capture drive letters; the rest could never match."""
    with pytest.raises(SchemaError):
        register_store(scheme, lambda _: MemoryStore())


def test_a_backend_whose_package_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheme of the table whose module cannot be imported says what to install."""
    absent = resolve._Backend("no_such_package.store", "open", "cloud")
    monkeypatch.setitem(resolve._BACKENDS, "cloud", absent)
    with pytest.raises(MissingExtraError, match=r"cloud://.*streaming-core\[cloud\]"):
        open_store("cloud://bucket")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        ("https://u:p@host:80/a?sig=s#f", "https://host:80/a"),
        ("az://u:p@w@host", "az://host"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("dbfs:/u:p@host/a", "dbfs:/host/a"),
        ("https:/u:p@host/a?sig=s", "https:/host/a"),
        ("http://u:p?w@host/a", "http://host/a"),
        ("http://u:p#w@host/a?b", "http://host/a"),
        ("http://host?to=me@x", "http://host"),
        ("/data/a?b@c", "/data/a?b@c"),
    ],
)
def test_a_public_url_has_no_secrets(url: str, shown: str) -> None:
    """User, password, query and fragment go; an @ in the path stays."""
    assert public_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "hf://user:secret@datasets/a/b",
        "dbfs://user:secret@host/x",
        "dbfs:/user:secret@host/x//y",
        "oci://user:secret@/x",
        "http://user:secret@[::1/x",
        "https://user:secret@[nonsense]/x",
        "sftp://user:secret@[::1/x",
    ],
)
def test_a_malformed_url_is_an_error_without_its_password(url: str) -> None:
    """Whoever mistypes a URL shows it to others, to be helped."""
    with pytest.raises(SchemaError) as caught:
        open_store(url)
    shown = traceback.format_exception(caught.value)
    assert not [line for line in shown if "secret" in line]


@pytest.mark.parametrize("endpoint", ["http://[::1", "http://host:port"])
@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://bucket/x", "az://container/x"])
def test_a_malformed_endpoint_is_an_error_that_says_so(url: str, endpoint: str) -> None:
    """It is no fault of the store, and nothing that could pass."""
    more = {"account_name": "me"} if url.startswith("az") else {}
    with pytest.raises(SchemaError, match="endpoint"):
        open_store(url, {**more, "endpoint_url": endpoint})
