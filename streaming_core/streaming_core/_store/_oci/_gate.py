"""The way to one bucket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import msgspec

from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    Refusal,
    RefusedError,
    connection_options,
    sent,
)
from streaming_core._store._oci._account import Account
from streaming_core._store._oci._sign import signature_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._options import Options

__all__ = ["OciGate"]

_UNAUTHORISED: Final = 401
_SKEW: Final = timedelta(minutes=4)
"""The service bears five minutes."""


class _Said(msgspec.Struct):
    code: str = ""
    message: str = ""


_SAID: Final = msgspec.json.Decoder(_Said)


class OciGate(Gate):
    """One object storage service, under one identity."""

    def __init__(self, endpoint: str, options: Options) -> None:
        super().__init__(endpoint, **connection_options(options))
        self._account = Account(options)
        self._ahead = timedelta()
        """How much the service's clock is ahead of ours."""

    def signed(self, call: Call) -> Call:
        """Add the signature, if anybody signs."""
        identity = sent.proof = self._account.identity()
        if identity is None:
            return call
        proof = signature_headers(
            identity,
            datetime.now(UTC) + self._ahead,
            method=call.method,
            host=self.origin.authority,
            target=call.target,
            body=call.body if call.method == "POST" else None,
        )
        return call._replace(headers={**call.headers, **proof})

    def renew(self) -> bool:
        """Look for another identity."""
        return self._account.renew(sent.proof)

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return code and message."""
        del headers
        try:
            said = _SAID.decode(body)
        except msgspec.DecodeError:
            return Refusal()
        return Refusal(said.code, said.message)

    def send(self, call: Call) -> Answer:
        """Return the answer, with etags as listings have them; learns the service's time."""
        try:
            answer = super().send(call)
        except RefusedError as error:
            if error.status != _UNAUTHORISED or not self._set_clock(error.headers.get("date", "")):
                raise
            answer = super().send(call)
        etag = answer.headers.get("etag", "").strip('"')
        if etag:
            answer.headers["etag"] = etag
        return answer

    def _set_clock(self, date: str) -> bool:
        """Take over the service's time; tell whether that makes a difference."""
        try:
            ahead = parsedate_to_datetime(date) - datetime.now(UTC)
        except (TypeError, ValueError):
            return False
        if abs(ahead - self._ahead) < _SKEW:
            return False
        self._ahead = ahead
        return True
