"""The way to one container."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from streaming_core._store._azure._credentials import Credentials, SharedKey, Signature, Token
from streaming_core._store._azure._sign import authorization
from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    Refusal,
    RefusedError,
    connection_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._azure._credentials import Proof
    from streaming_core._store._azure._place import Place
    from streaming_core._store._options import Options

__all__ = ["AzureGate"]

_VERSION: Final = "2023-11-03"
"""Of the service's language; since 2020 it says which entries of a listing are folders."""
_UNAUTHORISED: Final = 401
_UNPROVEN: Final = "AuthenticationFailed"
_UNCLEAR: Final = "AuthorizationFailure"
"""May be about the proof if that is no token; else it is about what one may do."""
_SKEW_SECONDS: Final = 300.0
"""Azure refuses keys with a clock that is a quarter of an hour off."""
_ENDED: Final = re.compile(r"Signature not valid in the specified time frame[^\n<]*")
"""The one detail that is shown; others repeat the signature."""


class _Used(threading.local):
    """What this thread's last request was signed with."""

    proof: Proof = None


_used = _Used()


class AzureGate(Gate):
    """One container of one account, under one identity."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place.url, **connection_options(options))
        self.place = place
        self._credentials = Credentials(place.account, options)
        self._ahead = timedelta()
        """How much the service's clock is ahead of ours."""

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are those of nobody in particular, for want of anything better."""
        return self._credentials.proof() is None

    def signed(self, call: Call) -> Call:
        """Add what proves who we are, if anything does."""
        moment = format_datetime(datetime.now(UTC) + self._ahead, usegmt=True)
        headers = {"x-ms-version": _VERSION, "x-ms-date": moment, **call.headers}
        proof = self._credentials.proof()
        _used.proof = proof
        if isinstance(proof, Signature):
            return call._replace(headers=headers, query={**call.query, **dict(proof.pairs)})
        if isinstance(proof, Token):
            headers["Authorization"] = f"Bearer {proof.text}"
        elif isinstance(proof, SharedKey):
            headers["Authorization"] = authorization(
                self.place.account,
                proof.key,
                method=call.method,
                path=call.path,
                query=call.query,
                headers=headers,
                length=sum(map(len, call.body)),
            )
        return call._replace(headers=headers)

    def renew(self) -> bool:
        """Get another proof."""
        return self._credentials.renew(_used.proof)

    def is_expired(self, status: int, refusal: Refusal) -> bool:
        """Tell whether a refusal may say that the proof has run out."""
        if refusal.code == _UNCLEAR:
            return not isinstance(_used.proof, Token)
        return status == _UNAUTHORISED or refusal.code == _UNPROVEN

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return code and first line of the message; the rest may repeat what was signed."""
        code = headers.get("x-ms-error-code", "")
        try:
            root = ET.fromstring(body)  # noqa: S314 - the parser limits what entities expand to
        except ET.ParseError:
            return Refusal(code)
        texts = {element.tag.rpartition("}")[2]: element.text or "" for element in root}
        message = texts.get("Message", "").partition("\n")[0].strip().rstrip(".")
        ended = _ENDED.search(texts.get("AuthenticationErrorDetail", ""))
        return Refusal(code or texts.get("Code", ""), ended[0].strip() if ended else message)

    def send(self, call: Call) -> Answer:
        """Return the answer; learns the service's time from a refusal."""
        try:
            return super().send(call)
        except RefusedError as error:
            ahead = self._ahead_of(error)
            if error.refusal.code not in {_UNPROVEN, _UNCLEAR} or ahead is None:
                raise
            self._ahead = ahead
        return super().send(call)

    def _ahead_of(self, error: RefusedError) -> timedelta | None:
        """Return how much the service is ahead, None if that does not explain a refusal."""
        try:
            there = parsedate_to_datetime(error.headers.get("date", ""))
        except ValueError:
            return None
        ahead = there - datetime.now(UTC)
        off = abs((ahead - self._ahead).total_seconds())
        return ahead if isinstance(_used.proof, SharedKey) and off > _SKEW_SECONDS else None
