"""Where a container is: accounts, endpoints, and the many forms of URLs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._options import Options

__all__ = [
    "FORMS",
    "Place",
    "connection_texts",
    "environment",
    "environment_names",
    "place_of",
    "texts_of",
]

FORMS: Final = (
    "az://container/path, azure://container/path or azure-dl://container/path with the account in "
    "the storage option account_name or in AZURE_ACCOUNT_NAME; "
    "az://account.blob.core.windows.net/container/path; "
    "abfss://container@account.dfs.core.windows.net/path; "
    "wasbs://container@account.blob.core.windows.net/path; with azure:// and azure-dl:// also "
    "azure://account/container/path, where account is the one of the option or variable"
)
"""The URLs that name a container."""

_CONNECTION: Final = "AZURE_STORAGE_CONNECTION_STRING"
_ACCOUNTS: Final = ("AZURE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
_DOMAIN: Final = "core.windows.net"
_CLOUDS: Final = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".core.cloudapi.de",
    ".storage.azure.net",
    ".fabric.microsoft.com",
)
"""What Azure's own host names end in; to no others a URL alone sends credentials."""
_HOST_FIRST: Final = frozenset({"azure", "azure-dl"})
"""Schemes of which the host may be the account, as some tools write them."""
_SERVICES: Final = frozenset({"blob", "dfs"})


class Place(NamedTuple):
    """One container."""

    account: str
    container: str
    endpoint: str
    """The account's URL for blobs, without the container."""
    root: str
    """The container's URL as it is shown, without secrets."""
    folder: str
    """What the URL says beyond the container, without slashes around it."""

    @property
    def url(self) -> str:
        """The container's URL for requests.

        Example:
            >>> Place("a", "data", "https://a.blob.core.windows.net", "az://data", "").url
            'https://a.blob.core.windows.net/data'
        """
        return f"{self.endpoint}/{quote(self.container, safe='$-_.~')}"


def connection_texts(text: object) -> Mapping[str, str]:
    """Return what a connection string says, by its names in small letters.

    Raises `SchemaError`, which does not show it, for what is no connection string.

    Example:
        >>> connection_texts("AccountName=a;AccountKey=aGVsbG8=")
        {'accountname': 'a', 'accountkey': 'aGVsbG8='}
    """
    parts = [part.partition("=") for part in str(text).strip().split(";") if part.strip()]
    found = {name.strip().lower(): value.strip() for name, _, value in parts}
    if not found.keys() & {"accountname", "blobendpoint"}:
        msg = (
            "the connection string names neither AccountName nor BlobEndpoint; copy it whole from "
            "'Access keys' of the storage account, and write shortcuts such as "
            "UseDevelopmentStorage out (it is not shown here because it is secret)"
        )
        raise SchemaError(msg)
    return found


def place_of(url: str, options: Options) -> Place:
    """Return which container a URL names; `SchemaError` if it names none, or nobody its account.

    Example:
        >>> from streaming_core._store._options import Options
        >>> place_of("abfss://data@acct.dfs.core.windows.net/set", Options(None, known=())).url
        'https://acct.blob.core.windows.net/data'
    """
    scheme, slashes, rest = url.partition("://")
    scheme = scheme.lower()
    if not slashes:
        raise _no_place(scheme, "it lacks '://'")
    # A query would be taken for a part of a name, and be shown.
    if "sig=" in rest.partition("?")[2]:
        raise _no_place(scheme, "it has a query; give a SAS as the storage option sas_token")
    host, _, path = rest.partition("/")
    first, _, folder = path.strip("/").partition("/")
    user, at, there = host.rpartition("@")
    texts = _texts(options)
    known = _known_account(options, texts)
    if not host or (at and (not user or ":" in user)):
        raise _no_place(scheme, "it has no container")
    if at or "." in there:
        account, endpoint = _account_at(scheme, there)
        container, folder = (user, path.strip("/")) if at else (first, folder)
        root = f"{scheme}://{there}/{container}"
    elif scheme in _HOST_FIRST and host == known:
        account, endpoint, container = known, "", first
        root = f"{scheme}://{host}/{container}"
    else:
        account, endpoint, container, folder = known, "", host, path.strip("/")
        root = f"{scheme}://{host}"
    if not container:
        raise _no_place(scheme, "it has no container")
    _check_options(options, texts, account)
    endpoint = _endpoint(options, texts if _is_of(texts, account) else {}, account, endpoint)
    account = account or _account_in(endpoint)
    if not account:
        raise _no_place(scheme, "nothing says which account the container is in")
    return Place(account, container, endpoint, root, folder.strip("/"))


def environment(*names: str) -> str:
    """Return the first of some environment variables that is set; empty if none is."""
    return next((value for name in names if (value := os.environ.get(name))), "")


def environment_names(account: str) -> bool:
    """Tell whether keys in the environment are of the account, as far as it says whose they are."""
    return environment(*_ACCOUNTS) in {account, ""}


def texts_of(options: Options, account: str) -> Mapping[str, str]:
    """Return what the connection string says, if there is one and it is of the account."""
    texts = _texts(options)
    return texts if _is_of(texts, account) else {}


# --- accounts and endpoints -----------------------------------------------------------------------


def _texts(options: Options) -> Mapping[str, str]:
    text = options.get("connection_string")
    if not text and not options.get("endpoint_url"):
        text = environment(_CONNECTION)
    return connection_texts(text) if text else {}


def _is_of(texts: Mapping[str, str], account: str) -> bool:
    return not account or _account_of(texts) in {account, ""}


def _account_of(texts: Mapping[str, str]) -> str:
    return texts.get("accountname", "") or _account_in(texts.get("blobendpoint", ""))


def _known_account(options: Options, texts: Mapping[str, str]) -> str:
    """Return the account that options or environment name; empty if they do not."""
    given = options.get("account_name")
    return str(given) if given else _account_of(texts) or environment(*_ACCOUNTS)


def _account_in(endpoint: str) -> str:
    """Return the account in a URL of the service: of its host name, or of the path elsewhere."""
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return ""  # what is wrong with it is said where it is used
    labels = (parts.hostname or "").split(".")
    if _SERVICES & {*labels[1:]}:
        return labels[0].removesuffix("-secondary")
    return parts.path.strip("/").partition("/")[0]


def _account_at(scheme: str, host: str) -> tuple[str, str]:
    """Return account and endpoint of a host name in a URL; Data Lake has one for blobs as well."""
    if "." not in host:
        return host, ""
    name, _, domain = host.lower().partition(".")
    labels = domain.split(".")
    if not domain.endswith(_CLOUDS) or not _SERVICES & {*labels[:2]}:
        raise _no_place(
            scheme,
            f"{host!r} is no host of Azure storage; for another cloud or an emulator give the "
            "storage options endpoint_url and account_name",
        )
    blob = ".".join("blob" if label == "dfs" else label for label in labels)
    return name.removesuffix("-secondary"), f"https://{name}.{blob}"


def _endpoint(options: Options, texts: Mapping[str, str], account: str, by_host: str) -> str:
    """Return the account's URL for blobs: as said explicitly, else by the rule."""
    given = options.get("endpoint_url")
    if not given and texts:
        given = texts.get("blobendpoint") or by_host
        if not given:
            protocol = texts.get("defaultendpointsprotocol", "https")
            given = f"{protocol}://{account}.blob.{texts.get('endpointsuffix', _DOMAIN)}"
    given = str(given or by_host or (account and f"https://{account}.blob.{_DOMAIN}"))
    if "?" in given or "@" in given:
        msg = (
            "the endpoint of Azure storage must be a plain URL such as "
            f"https://account.blob.{_DOMAIN}; give a SAS as the storage option sas_token"
        )
        raise SchemaError(msg)
    return given.rstrip("/")


def _check_options(options: Options, texts: Mapping[str, str], account: str) -> None:
    """Raise `SchemaError` if the URL names one account and what was given with it another."""
    named = str(options.get("account_name", default=account))
    if options.get("connection_string") and not _is_of(texts, account):
        named = _account_of(texts)
    if account and named != account:
        msg = f"the URL names the storage account {account!r}, its storage options {named!r}"
        raise SchemaError(msg)


def _no_place(scheme: str, why: str) -> SchemaError:
    return SchemaError(f"this {scheme}:// URL names no place in Azure, {why}. Known are: {FORMS}")
