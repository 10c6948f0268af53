"""The way to one service: where it is, who we are there, and what its refusals mean."""

from __future__ import annotations

import email.utils
import re
import threading
import time
from abc import ABC, abstractmethod
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypedDict
from urllib.parse import quote, urljoin, urlsplit

from streaming_core._store._http._wire import (
    FAILURES,
    Answer,
    Origin,
    Request,
    Timeouts,
    UntrustedError,
    WireError,
    exchange,
    is_local,
    key_of,
)
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streaming_core._store._options import Options

__all__ = ["Call", "Gate", "Refusal", "RefusedError", "connection_options", "query_text", "sent"]

_ERROR_BYTES: Final = 64 << 10
_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_READS: Final = frozenset({"GET", "HEAD"})
_UNAUTHORISED: Final = 401
_MISSING: Final = 404
_SUCCESSES: Final = range(200, 300)
_MAX_MESSAGE_CHARS: Final = 300
_SECONDS: Final = re.compile(r"(\d{1,9})(\.\d*)?", re.ASCII)
_IN_TARGETS: Final = "%/:?#[]@!$&'()*+,;=-._~"
"""What may stand in a path and query as it is."""
_PRINTABLE: Final = re.compile(r"[^\x20-\x7e]+")


class Call(NamedTuple):
    """One request to a service, before it is signed."""

    method: str
    path: str
    """Absolute, percent-encoded."""
    query: Mapping[str, str] = {}
    """Plain texts."""
    headers: Mapping[str, str] = {}
    """Those of the call itself; a gate adds others."""
    body: Sequence[memoryview] = ()
    """Views of bytes."""
    once: bool = False
    """Whether it must not reach the server twice."""
    secret_headers: Collection[str] = ()
    """Names of headers that are secret, besides `Authorization`."""

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        return f"{self.path}?{query_text(self.query)}" if self.query else self.path


class Refusal(NamedTuple):
    """What a service says with an error."""

    code: str = ""
    """Its own name for the error."""
    message: str = ""
    """Its text."""


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, headers: Mapping[str, str], refusal: Refusal) -> None:
        super().__init__(status, refusal)
        self.status = status
        self.headers = headers
        self.refusal = refusal
        self.retry_after = _seconds(headers.get("retry-after", ""), headers.get("date", ""))
        """For how many seconds it wants to be left alone; None if it does not say."""

    def __str__(self) -> str:
        words = [f"status {self.status}", self.refusal.code, self.refusal.message]
        if self.retry_after is not None:
            words.insert(1, f"Retry-After {self.retry_after:.0f} seconds")
        text = ", ".join(word for word in words if word)
        return _PRINTABLE.sub(" ", text)[:_MAX_MESSAGE_CHARS]


class ConnectionOptions(TypedDict):
    """How a service may be connected to."""

    ca_file: str | None
    allow_http: bool


def connection_options(options: Options, *variables: str) -> ConnectionOptions:
    """Return the options that all services have in common.

    `ca_file`, or the first of some environment variables, names the certificates to trust.
    `allow_http` permits tokens, passwords, and the headers of storage options on, and redirects to,
    `http://` hosts other than this machine; without it they are an error.
    """
    allow_http = options.get("allow_http", default=False)
    if not isinstance(allow_http, bool):
        msg = f"storage option allow_http: expected True or False, got {allow_http!r}"
        raise SchemaError(msg)
    return {"ca_file": options.get("ca_file", *variables), "allow_http": allow_http}


class _Sent(threading.local):
    """What this thread signed its last request with; other threads may have newer credentials."""

    proof: Any = None


sent = _Sent()


class Gate(ABC):
    """One service under one identity; picklable, and fit for any number of threads and forks."""

    def __init__(
        self,
        endpoint: str,
        *,
        timeouts: Timeouts | None = None,
        ca_file: str | None = None,
        allow_http: bool = False,
    ) -> None:
        """Go to `endpoint`, whose path precedes that of every call; `ValueError` if it is none."""
        self.origin = Origin.of(endpoint)
        self.base = urlsplit(endpoint).path.rstrip("/")
        self.timeouts = timeouts or Timeouts()
        self.ca_file = ca_file
        self.allow_http = allow_http

    def with_timeouts(self, timeouts: Timeouts) -> Self:
        """Return the same gate with other timeouts; what it learns, both know."""
        other = object.__new__(type(self))
        # Not by `copy`: that asks for a state as `pickle` does, which leaves secrets out.
        for name, value in vars(self).items():
            setattr(other, name, value)
        other.timeouts = timeouts
        return other

    # --- what services differ in ------------------------------------------------------------------

    @abstractmethod
    def signed(self, call: Call) -> Call:
        """Return the call with what proves who we are; its path has the base already."""

    def renew(self) -> bool:
        """Get other credentials than those used last; tell whether there are any."""
        return False

    def is_expired(self, status: int, refusal: Refusal) -> bool:
        """Tell whether a refusal says that the credentials have run out."""
        del refusal
        return status == _UNAUTHORISED

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return what the body of an error says; nothing that may be secret."""
        del headers, body
        return Refusal()

    # --- what they share --------------------------------------------------------------------------

    def send(self, call: Call) -> Answer:
        """Return the answer to a call.

        Redirected reads are followed. Where the credentials have run out, new ones are tried once.

        Raises:
            RefusedError: The answer is an error.
            OSError: There was none; so does `http.client.HTTPException`.
        """
        call = call._replace(path=self.base + call.path)
        try:
            return self._sent(call)
        except RefusedError as error:
            if not self.is_expired(error.status, error.refusal) or not self.renew():
                raise
        return self._sent(call)

    def _sent(self, call: Call) -> Answer:
        signed = self.signed(call)
        origin, target, headers = self.origin, signed.target, signed.headers
        for _ in range(_MOST_REDIRECTS + 1):
            answer = exchange(
                Request(
                    call.method,
                    origin,
                    target,
                    headers,
                    call.body,
                    call.once,
                    self.timeouts,
                    self.ca_file,
                    self.allow_http,
                    signed.secret_headers,
                )
            )
            if answer.status in _SUCCESSES:
                return answer
            with answer:
                there = _elsewhere(answer, call.method, origin, target)
                if there is None:
                    raise self._refused(answer, call.method)
                _error_body(answer, call.method)  # so that the connection can be kept
            self.check_redirect(origin, there[0])
            if there[0] != origin:  # what proves who we are is not for others
                headers = {k: v for k, v in call.headers.items() if k.lower() != "authorization"}
            origin, target = there
        msg = f"the server redirects more than {_MOST_REDIRECTS} times, last to {origin.text}"
        raise WireError(msg)

    def check_redirect(self, origin: Origin, there: Origin) -> None:
        """Raise `UntrustedError` for a redirect from `https://` to `http://`."""
        if origin.scheme == "https" and there.scheme == "http":
            if self.allow_http or is_local(key_of(there, self.ca_file)):
                return
            msg = (
                f"redirected from {origin.text} to {there.text}, where anyone on the way can read "
                "and replace the bytes; give the storage option allow_http=True to follow it"
            )
            raise UntrustedError(msg)

    def _refused(self, answer: Answer, method: str) -> RefusedError:
        refusal = self.explain(answer.headers, _error_body(answer, method))
        if answer.status in _REDIRECTS and refusal == Refusal():
            refusal = Refusal("", "redirected, which is not followed for this request")
        return RefusedError(answer.status, answer.headers, refusal)


def _error_body(answer: Answer, method: str) -> bytes:
    """Return what an error comes with; the error stands, even if that is cut short."""
    try:
        return b"" if method == "HEAD" else answer.read(_ERROR_BYTES)
    except FAILURES:
        return b""


def _elsewhere(
    answer: Answer, method: str, origin: Origin, target: str
) -> tuple[Origin, str] | None:
    """Return where a read is redirected to, None if it is not.

    Raises `RefusedError` for a folder: servers redirect from its name to that with a slash.
    """
    location = answer.headers.get("location", "")
    if answer.status not in _REDIRECTS or not location or method not in _READS:
        return None
    # Headers come as Latin-1, whatever the server meant.
    location = quote(location.strip().encode("latin-1", "replace"), safe=_IN_TARGETS)
    try:
        url = urljoin(origin.text + target, location)
        there, parts = Origin.of(url), urlsplit(url)
    except ValueError:
        msg = "the server redirects to what is no http:// or https:// URL"
        raise WireError(msg) from None
    if there == origin and parts.path == target.partition("?")[0] + "/":
        raise RefusedError(_MISSING, answer.headers, Refusal("", "a folder"))
    return there, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def query_text(query: Mapping[str, str]) -> str:
    """Return a query in the form in which services sign it: sorted, all but letters encoded.

    Example:
        >>> query_text({"prefix": "a b/", "list-type": "2"})
        'list-type=2&prefix=a%20b%2F'
    """
    pairs = sorted((quote(name, safe="-_.~"), quote(v, safe="-_.~")) for name, v in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _seconds(text: str, date: str) -> float | None:
    """Return a `Retry-After` in seconds; it comes as a number, or as a time of the server's clock.

    What the server's clock shows now, `date` says; ours may be off.
    """
    text = text.strip()
    if match := _SECONDS.fullmatch(text):
        return float(match[0])
    moment = _moment(text)
    if moment is None:
        return None
    now = _moment(date)
    return max(0.0, moment - (time.time() if now is None else now))


def _moment(text: str) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
        # A date without a zone is in GMT, as all are in HTTP.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
