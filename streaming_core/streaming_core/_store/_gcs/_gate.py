"""The way to one bucket in Google's own language."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streaming_core._store._gcs._place import plain, project_of
from streaming_core._store._gcs._tokens import Tokens
from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    Refusal,
    RefusedError,
    connection_options,
)
from streaming_core._store._http._wire import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._gcs._place import Place
    from streaming_core._store._options import Options

__all__ = ["GCSGate"]

_EMPTY_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/\d+", re.ASCII)
_PARTIAL: Final = 206
_NOT_IN_THERE: Final = 416
_DENIED: Final = frozenset({401, 403})
_HINT: Final = (
    "no Google credentials were found, so that nobody was asking: set "
    "GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'. "
)


class _Used(threading.local):
    """Which token this thread sent last; what was refused is not always the newest one."""

    token: str = ""


_used = _Used()


class GCSGate(Gate):
    """One bucket of Google Cloud Storage, under one identity."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place.endpoint, **connection_options(options))
        self._bucket = quote(place.bucket, safe="")
        self._tokens = Tokens(options, is_emulator=place.is_emulator)
        self._payer = project_of(options, "user_project")
        self._project = project_of(options, "project")

    @property
    def objects(self) -> str:
        """The path of the bucket's objects."""
        return f"/storage/v1/b/{self._bucket}/o"

    @property
    def uploads(self) -> str:
        """The path that objects are sent to."""
        return f"/upload{self.objects}"

    def signed(self, call: Call) -> Call:
        """Add the access token, if there is one, and who pays."""
        token = _used.token = self._tokens.text()
        headers = dict(call.headers)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self._project:
            headers["x-goog-user-project"] = self._project
        query = {**call.query, "userProject": self._payer} if self._payer else call.query
        return call._replace(headers=headers, query=query)

    def renew(self) -> bool:
        """Get another token."""
        return self._tokens.renew(_used.token)

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return reason and message; some answers are a document, some a line of text."""
        body = plain(headers, body)
        try:
            error = json.loads(body)["error"]
            message = str(error["message"])
            reason = str(error["errors"][0]["reason"]) if error.get("errors") else ""
        except (ValueError, LookupError, TypeError, AttributeError):
            reason, message = "", body.decode(errors="replace").strip()
            if message.startswith(("<", "{")):
                message = ""  # a page of a proxy, or who knows what
        return Refusal(reason, self._without_token(message))

    def send(self, call: Call) -> Answer:
        """Return the answer; of bodies of objects, `etag` is the generation, as everywhere."""
        try:
            answer = super().send(call)
        except RefusedError as error:
            if error.status not in _DENIED or _used.token or self._tokens.is_chosen:
                raise
            refusal = Refusal(error.refusal.code, _HINT + error.refusal.message)
            raise RefusedError(error.status, error.headers, refusal) from None
        if call.query.get("alt") == "media":
            try:
                _translate(answer)
            except BaseException:
                answer.close()
                raise
        return answer

    @staticmethod
    def _without_token(text: str) -> str:
        return text.replace(_used.token, "…") if _used.token else text


def _translate(answer: Answer) -> None:
    """Put the headers of an object's bytes into the words that `HttpStore` reads."""
    headers = answer.headers
    headers["etag"] = headers.get("x-goog-generation", "")
    headers.pop("last-modified", None)
    kept = headers.get("x-goog-stored-content-encoding", "")
    sent = headers.get("content-encoding", "identity")
    if kept and kept != sent:
        msg = f"the service stores the object as {kept} and sent it as {sent}"
        raise WireError(msg)
    match = _EMPTY_RANGE.fullmatch(headers.get("content-range", ""))
    if answer.status == _PARTIAL and match and int(match[1]) > int(match[2]):
        # So emulators say that there is nothing.
        raise RefusedError(_NOT_IN_THERE, headers, Refusal())
