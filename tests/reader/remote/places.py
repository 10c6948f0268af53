"""The same data sets on every kind of server, each behind a fault proxy."""

from __future__ import annotations

import itertools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.reader.remote.serving import write
from tests.servers.azure import azurite
from tests.servers.faults import Denied
from tests.servers.gcs import emulator
from tests.servers.hf import Hub
from tests.servers.nginx import TOKEN, nginx
from tests.servers.proxy import Proxy
from tests.servers.s3 import moto

from streaming_core import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from tests.servers.faults import Fault
    from tests.servers.proxy import Passed

__all__ = ["PLACES", "SETS", "Place", "serving"]

SETS = {"small": (64, 250, 2400), "large": (2, 1_500_000, 1 << 22), "blobs": (24, 60_000, 500_000)}
"""Data sets by name: number of samples, bytes of each, and of a shard."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the data sets lie on one server, with a proxy before it."""

    folder: str
    """The URL below which they are."""
    options: Mapping[str, Any]
    proxies: tuple[Proxy, ...]
    """The way there; large files may take the last one."""
    stale: Callable[[], dict[str, Any]]
    """Returns other options at each call, of which only the first are refused."""
    denial: Fault | None = None
    """What refuses them, if the server does not do so by itself."""
    private: str = ""
    """The folder as those who are refused without credentials have to call it."""

    def hurt(self, fault: Fault, **which: Any) -> None:
        """Let it happen on the way."""
        for proxy in self.proxies:
            proxy.hurt(fault, **which)

    def heal(self) -> None:
        """Let nothing happen, and begin counting anew."""
        for proxy in self.proxies:
            proxy.heal()
            proxy.forget()

    @property
    def log(self) -> list[Passed]:
        """What passed since."""
        return [passed for proxy in self.proxies for passed in [*proxy.log]]


def _turns(first: dict[str, Any], then: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    turns = itertools.chain([first], itertools.repeat(then))
    return lambda: next(turns)


def _copied(made: Path, folder: str, options: Mapping[str, Any]) -> None:
    for path in made.rglob("*.*"):
        if path.is_file():
            store = open_store(folder, dict(options))
            store.put(path.relative_to(made).as_posix(), [path.read_bytes()])


@contextmanager
def _s3(made: Path, _: Path) -> Generator[Place]:
    with moto() as server, Proxy(server.url) as proxy:
        folder = f"s3://{server.bucket()}"
        _copied(made, folder, server.options())
        options = server.options(endpoint_url=proxy.url)
        yield Place(
            folder,
            options,
            (proxy,),
            _turns(options, {**options, "access_key_id": "fresh"}),
            Denied("fresh", 400, b"<Error><Code>ExpiredToken</Code></Error>"),
        )


@contextmanager
def _gcs(made: Path, _: Path) -> Generator[Place]:
    with emulator() as server, Proxy(server.url) as proxy:
        folder = f"gs://{server.bucket()}"
        _copied(made, folder, {"endpoint_url": server.url, "anonymous": True})
        options: dict[str, Any] = {"endpoint_url": proxy.url}
        yield Place(
            folder,
            {**options, "anonymous": True},
            (proxy,),
            _turns({**options, "token": "old"}, {**options, "token": "fresh"}),
            Denied("fresh"),
        )


@contextmanager
def _azure(made: Path, work: Path) -> Generator[Place]:
    from azure.storage.blob import BlobServiceClient

    with azurite(work) as server, Proxy(server.endpoint) as proxy:
        with BlobServiceClient.from_connection_string(server.connection_string) as client:
            client.create_container("data")
        key = {"account_name": server.account, "account_key": server.key}
        _copied(made, "az://data", {**key, "endpoint_url": server.endpoint})
        there = replace(server, port=urlsplit(proxy.url).port or 0).endpoint
        # Nothing of the request is signed, so that the proxy may change it.
        old, fresh = (server.sas("data", "rl", hours=hours) for hours in (-1, 1))
        options: dict[str, Any] = {"endpoint_url": there}
        yield Place(
            "az://data",
            {**options, "sas_token": fresh},
            (proxy,),
            _turns({**options, "sas_token": old}, {**options, "sas_token": fresh}),
        )


@contextmanager
def _nginx(made: Path, work: Path) -> Generator[Place]:
    with nginx(work) as server, Proxy(server.url) as proxy:
        for name in SETS:
            (made / name).rename(server.files / name)
        yield Place(
            f"{proxy.url}/data",
            {},
            (proxy,),
            _turns(
                {"headers": {"Authorization": "Bearer old"}}, {"headers": {"Authorization": TOKEN}}
            ),
            private=f"{proxy.url}/private",
        )


@contextmanager
def _hf(made: Path, _: Path) -> Generator[Place]:
    with (
        Hub("datasets/owner/name", token="fresh") as hub,  # noqa: S106 - opens nothing else
        Proxy(hub.url) as proxy,
        Proxy(hub.cdn.url) as far,
    ):
        hub.cdn.url = far.url
        files = {
            path.relative_to(made).as_posix(): path.read_bytes()
            for path in made.rglob("*.*")
            if path.is_file()
        }
        hub.commit("datasets/owner/name", {**files})
        options = {"endpoint_url": proxy.url, "token": "fresh"}
        yield Place(
            "hf://datasets/owner/name",
            options,
            (proxy, far),
            _turns({**options, "token": "old"}, options),
        )


PLACES = {"s3": _s3, "gcs": _gcs, "azure": _azure, "nginx": _nginx, "hf": _hf}


@contextmanager
def serving(name: str, folder: Path) -> Generator[Place]:
    """Give a place on one kind of server; `folder` is for its files."""
    made, work = folder / "made", folder / "work"
    work.mkdir()
    for kind, (number, size, shard) in SETS.items():
        write(made / kind, number, size=size, shard=shard)
    with ExitStack() as stack:
        yield stack.enter_context(PLACES[name](made, work))
