"""The way to one workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from streaming_core._store._databricks._account import Account
from streaming_core._store._http import Call, Gate, Refusal, connection_options, sent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._options import Options

__all__ = ["DatabricksGate"]


class _Said(msgspec.Struct):
    error_code: str = ""
    message: str = ""


_SAID: Final = msgspec.json.Decoder(_Said)


class DatabricksGate(Gate):
    """One workspace, under one identity."""

    def __init__(self, endpoint: str, options: Options) -> None:
        super().__init__(endpoint, **connection_options(options))
        self._account = Account(self.origin.text, options)

    def signed(self, call: Call) -> Call:
        """Add what says who we are."""
        sent.proof = proof = self._account.headers()
        return call._replace(headers={**call.headers, **proof})

    def renew(self) -> bool:
        """Sign in anew."""
        return self._account.renew(sent.proof)

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return code and message."""
        del headers
        try:
            said = _SAID.decode(body)
        except msgspec.DecodeError:
            return Refusal()
        return Refusal(said.error_code, said.message)
