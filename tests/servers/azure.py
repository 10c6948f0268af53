"""Azurite, the emulator of Azure Blob Storage, as a process of its own."""

from __future__ import annotations

import base64
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.servers.processes import needs, serving

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Azurite", "azurite"]

_PROGRAM: Final = (
    Path(__file__).parents[2] / ".servers" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
)


@dataclass(frozen=True, slots=True)
class Azurite:
    """A running emulator with one account."""

    port: int
    account: str
    key: str
    scheme: str = "http"

    @property
    def endpoint(self) -> str:
        """The account's URL; the emulator has it in the path."""
        return f"{self.scheme}://127.0.0.1:{self.port}/{self.account}"

    @property
    def connection_string(self) -> str:
        """All that a client needs."""
        return (
            f"DefaultEndpointsProtocol={self.scheme};AccountName={self.account};"
            f"AccountKey={self.key};BlobEndpoint={self.endpoint};"
        )

    def sas(self, container: str, permission: str, *, hours: float = 1) -> str:
        """Return a signature, made by Azure's own client, that ends in so many hours."""
        from azure.storage.blob import ContainerSasPermissions, generate_container_sas

        now = datetime.now(UTC)
        return str(
            generate_container_sas(
                self.account,
                container,
                self.key,
                permission=ContainerSasPermissions.from_string(permission),
                start=now - timedelta(hours=3),
                expiry=now + timedelta(hours=hours),
            )
        )


@contextmanager
def azurite(
    folder: Path, *, cert: Path | None = None, key: Path | None = None
) -> Generator[Azurite]:
    """Run the emulator with an account of its own until the block ends; all lies in memory.

    With `cert` and `key` it speaks TLS and takes bearer tokens, of which it checks issuer,
    audience and times, but no signature.
    """
    needs("Azurite", _PROGRAM.exists(), "run tests/servers/install.sh, which needs npm")
    account, secret = "teststore", base64.b64encode(os.urandom(32)).decode()
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    if cert is not None:
        options += ["--oauth", "basic", "--cert", str(cert), "--key", str(key)]

    def command(port: int) -> list[str]:
        return [str(_PROGRAM), *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)]

    with serving(command, cwd=folder, env={"AZURITE_ACCOUNTS": f"{account}:{secret}"}) as served:
        yield Azurite(served.port, account, secret, "http" if cert is None else "https")
