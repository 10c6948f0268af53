"""Which container a URL names, and what is said where it names none."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from streaming_core import open_store
from streaming_core._store._azure._place import place_of
from streaming_core._store._options import Options
from streaming_core.errors import SchemaError

_SECRET = "c2VjcmV0LXRleHQ="  # noqa: S105 - of nobody
_KNOWN = ("account_name", "endpoint_url", "connection_string")


def _place(url: str, **options: Any) -> tuple[str, str, str, str]:
    place = place_of(url, Options(options, known=_KNOWN))
    return place.account, place.endpoint, place.container, place.folder


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("az://data/a/b", ("acct", "https://acct.blob.core.windows.net", "data", "a/b")),
        ("az://data", ("acct", "https://acct.blob.core.windows.net", "data", "")),
        ("AZ://data/a/", ("acct", "https://acct.blob.core.windows.net", "data", "a")),
        ("azure://data/a", ("acct", "https://acct.blob.core.windows.net", "data", "a")),
        ("azure-dl://data/a", ("acct", "https://acct.blob.core.windows.net", "data", "a")),
        ("abfs://data/a", ("acct", "https://acct.blob.core.windows.net", "data", "a")),
        # The host is the account where it is called like that, but not in az://.
        ("azure://acct/data/a", ("acct", "https://acct.blob.core.windows.net", "data", "a")),
        ("azure-dl://acct/data", ("acct", "https://acct.blob.core.windows.net", "data", "")),
        ("az://acct/data", ("acct", "https://acct.blob.core.windows.net", "acct", "data")),
    ],
)
def test_the_account_comes_from_beside_the_url(url: str, expected: tuple[str, ...]) -> None:
    """URLs with a container only take the account of the option."""
    assert _place(url, account_name="acct") == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "abfss://data@mine.dfs.core.windows.net/a/b",
            ("mine", "https://mine.blob.core.windows.net", "data", "a/b"),
        ),
        (
            "abfs://data@mine.dfs.core.windows.net",
            ("mine", "https://mine.blob.core.windows.net", "data", ""),
        ),
        (
            "wasbs://data@mine.blob.core.windows.net/a",
            ("mine", "https://mine.blob.core.windows.net", "data", "a"),
        ),
        ("wasb://data@mine/a", ("mine", "https://mine.blob.core.windows.net", "data", "a")),
        (
            "azure://mine.blob.core.windows.net/data/a",
            ("mine", "https://mine.blob.core.windows.net", "data", "a"),
        ),
        (
            "az://mine-secondary.blob.core.windows.net/data",
            ("mine", "https://mine-secondary.blob.core.windows.net", "data", ""),
        ),
        (
            "abfss://data@mine.dfs.core.chinacloudapi.cn/a",
            ("mine", "https://mine.blob.core.chinacloudapi.cn", "data", "a"),
        ),
        (
            "abfss://space@onelake.dfs.fabric.microsoft.com/x.Lakehouse/Files",
            ("onelake", "https://onelake.blob.fabric.microsoft.com", "space", "x.Lakehouse/Files"),
        ),
        (
            "az://mine.z5.blob.storage.azure.net/data",
            ("mine", "https://mine.z5.blob.storage.azure.net", "data", ""),
        ),
    ],
)
def test_the_url_may_name_the_account(
    url: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of Azure's is account and cloud, whatever account the environment is about."""
    assert _place(url) == expected
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", "another")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=other;AccountKey={_SECRET}")
    assert _place(url) == expected


@pytest.mark.parametrize(
    "name", ["AZURE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"]
)
def test_the_environment_may_name_the_account(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of other tools are understood."""
    monkeypatch.setenv(name, "acct")
    assert _place("az://data")[0] == "acct"
    assert _place("azure://acct/data/a")[2:] == ("data", "a")


@pytest.mark.parametrize(
    ("text", "account", "endpoint"),
    [
        ("AccountName=a1;AccountKey=xx==", "a1", "https://a1.blob.core.windows.net"),
        (
            "DefaultEndpointsProtocol=http;AccountName=a1;EndpointSuffix=core.usgovcloudapi.net",
            "a1",
            "http://a1.blob.core.usgovcloudapi.net",
        ),
        ("BlobEndpoint=https://a1.blob.x.org/;SharedAccessSignature=sig=1", "a1",
         "https://a1.blob.x.org"),
        ("blobendpoint=http://127.0.0.1:1/dev;", "dev", "http://127.0.0.1:1/dev"),
    ],
)  # fmt: skip
def test_understands_connection_strings(
    text: str, account: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Account and endpoint come from an option or the variable, whose names have any case."""
    assert _place("az://data", connection_string=text)[:2] == (account, endpoint)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert _place("az://data")[:2] == (account, endpoint)


def test_an_endpoint_may_be_elsewhere() -> None:
    """An emulator, or a private cloud, has the account in the path or is told it."""
    url = "http://127.0.0.1:10000/dev"
    assert _place("az://data", endpoint_url=url)[:2] == ("dev", url)
    assert _place("abfss://data@mine.dfs.core.windows.net", endpoint_url="http://h/mine/") == (
        "mine",
        "http://h/mine",
        "data",
        "",
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("az://data/a", "which account"),
        ("az://", "no container"),
        ("az:/data", "lacks '://'"),
        ("abfss://@mine.dfs.core.windows.net/a", "no container"),
        ("abfss://user:word@mine.dfs.core.windows.net/a", "no container"),
        ("az://mine.blob.core.windows.net/", "no container"),
        ("abfss://data@files.example.org/a", "no host of Azure"),
        ("abfss://data@blob.core.windows.net.example.org/a", "no host of Azure"),
        ("abfss://data@mine.queue.core.windows.net/a", "no host of Azure"),
        (f"az://data/a?sv=2026&sig={_SECRET}", "sas_token"),
    ],
)
def test_says_which_forms_there_are(url: str, reason: str) -> None:
    """A URL that names no place is refused with the reason and the forms, and is not repeated."""
    with pytest.raises(SchemaError, match=reason) as caught:
        open_store(url)
    assert "abfss://container@account.dfs.core.windows.net/path" in str(caught.value)
    assert _SECRET not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "another"},
        {"connection_string": f"AccountName=another;AccountKey={_SECRET}"},
    ],
)
def test_refuses_options_of_another_account(options: dict[str, str]) -> None:
    """What was given with a URL must be about the URL's account."""
    with pytest.raises(SchemaError, match=r"'mine'.*'another'") as caught:
        open_store("abfss://data@mine.dfs.core.windows.net/a", options)
    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"connection_string": _SECRET},
        {"endpoint_url": f"https://a.blob.core.windows.net/?sig={_SECRET}"},
        {"endpoint_url": f"https://u:{_SECRET}@a.blob.core.windows.net"},
        {"endpoint_url": "ftp://a.blob.core.windows.net", "account_name": "a"},
        {"acount_key": _SECRET},
    ],
)
def test_refuses_options_that_make_no_sense(options: dict[str, str]) -> None:
    """Mistakes are `SchemaError` at once, and none shows the text."""
    with pytest.raises(SchemaError) as caught:
        open_store("az://data", options)
    assert _SECRET not in str(caught.value)
    assert _SECRET not in repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    [
        "az://data/a b/ä",
        "azure://acct/data/a",
        "abfss://data@acct.dfs.core.windows.net/a",
        "wasbs://data@acct.blob.core.windows.net",
        "azure-dl://data",
    ],
)
def test_the_stores_url_opens_it_again(url: str) -> None:
    """`url` leads to an equal store at the same place; an `@` is not in it, nor in a pickle."""
    options = {"account_name": "acct", "account_key": _SECRET}
    store: Any = open_store(url, options)
    again: Any = open_store(store.url, options)
    assert (again, again.url) == (store, store.url)
    assert again.child("x")._prefix == store.child("x")._prefix
    assert again._gate.place.url == store._gate.place.url
    assert "@" not in store.url
    for shown in (repr(store), store.url, repr(pickle.dumps(store))):
        assert _SECRET not in shown
