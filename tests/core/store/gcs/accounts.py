"""A token service as Google's, and service accounts that it knows."""

from __future__ import annotations

import json
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.web import Asked

__all__ = ["TokenService"]


@cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


class TokenService:
    """Gives the tokens `token-1`, `token-2` and so on, while the `with` block runs.

    It is the token service of service accounts and the metadata server of a machine as well.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many tokens it gave."""
        self.seconds = 3600
        """How long they hold."""
        self.before: Callable[[], Said | None] | None = None
        """Is asked first, and may answer instead."""
        self._guard = threading.Lock()
        self._web = WebServer(answer=self._answer)

    def __enter__(self) -> Self:
        self._web.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._web.__exit__(*error)

    @property
    def host(self) -> str:
        """Host and port."""
        return self._web.url.removeprefix("http://")

    def account(self) -> dict[str, Any]:
        """Return the key of a service account."""
        return {
            "type": "service_account",
            "project_id": "test",
            "private_key_id": "1",
            "private_key": _private_key(),
            "client_email": "somebody@test.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{self._web.url}/token",
        }

    def account_file(self, folder: Path) -> Path:
        """Return a file with the key of a service account."""
        path = folder / "account.json"
        path.write_text(json.dumps(self.account()))
        return path

    def _answer(self, asked: Asked) -> Said:
        said = None if self.before is None else self.before()
        if said is not None:
            return said
        flavor = {"Metadata-Flavor": "Google", "Content-Type": "application/json"}
        if asked.method == "GET" and not asked.path.endswith("/token"):
            document: dict[str, Any] = {"email": "machine@test", "scopes": [], "aliases": []}
            return Said(200, json.dumps(document).encode(), flavor)
        with self._guard:
            self.count += 1
            token = f"token-{self.count}"
        document = {"access_token": token, "expires_in": self.seconds, "token_type": "Bearer"}
        return Said(200, json.dumps(document).encode(), flavor)
