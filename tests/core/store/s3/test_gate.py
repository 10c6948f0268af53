"""What refusals teach, and what they mean."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.s3.scripted import ETAG, Scripted, error
from tests.servers.s3 import KEYS
from tests.servers.web import Asked, Said

from streaming_core._store import is_final
from streaming_core._store._http import Refusal, RefusedError
from streaming_core._store._s3 import S3Store
from streaming_core._store._s3._sign import _proof
from streaming_core.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.s3 import S3Server


def _scope(asked: Asked) -> str:
    return asked.headers["authorization"].partition("Credential=")[2].split("/")[2]


# --- region and clock -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-9"),
        error(307, "TemporaryRedirect", x_amz_bucket_region="eu-west-9", Location="http://[::1]/x"),
        error(400, "AuthorizationHeaderMalformed", "<Region>eu-west-9</Region>"),
        error(400, "AuthorizationHeaderMalformed", x_amz_bucket_region="eu-west-9"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "put", "list"])
def test_learns_the_region_once(service: Scripted, said: Said, verb: str) -> None:
    """A refusal that names another region is asked again there, and nobody asks wrongly later."""

    def refuse(asked: Asked) -> Said | None:
        if _scope(asked) != "eu-west-9":
            return said
        return Said(200, b"<R/>", ETAG) if verb == "list" else None

    service.refuse = refuse
    store = service.store(**KEYS)
    verbs: dict[str, Callable[[], Any]] = {
        "get": lambda: store.get("a"),
        "put": lambda: store.put("a", [b"body"]),
        "list": lambda: list(store.list()),
    }
    for _ in range(2):
        verbs[verb]()
    assert [_scope(asked) for asked in service.asked] == ["us-east-1", "eu-west-9", "eu-west-9"]
    assert service.server.files.open("data/a") is not None


def test_moves_to_the_region_on_amazon() -> None:
    """Without an endpoint the host follows the region; a header cannot name any other host."""
    gate = S3Store.at("s3://data", {"anonymous": True})._s3
    for region in ("evil.example/", "a b", ""):
        refusal = RefusedError(301, {"x-amz-bucket-region": region}, Refusal())
        assert not gate._lesson(refusal, gate._attempt(), set())
    by_host = {"location": "https://data.s3.eu-west-3.amazonaws.com/a"}
    for headers, region in ((by_host, "eu-west-3"), ({"x-amz-bucket-region": "eu-4"}, "eu-4")):
        refusal = RefusedError(307, headers, Refusal())
        assert gate._lesson(refusal, gate._attempt(), set()) == "region"
        assert gate.learned.way.origin.text == f"https://data.s3.{region}.amazonaws.com"
        assert not gate._lesson(refusal, gate._attempt(), set())


@pytest.mark.parametrize("verb", ["get", "put", "head"])
def test_a_redirect_that_leads_nowhere_is_an_error(service: Scripted, verb: str) -> None:
    """An answer 301 that names no region is no success, and is not asked for ever."""
    service.refuse = lambda _: error(301, "PermanentRedirect", Location="/elsewhere")
    store = service.store(**KEYS)
    with pytest.raises(StoreError, match="301"):
        store.put("b", [b"body"]) if verb == "put" else getattr(store, verb)("a")
    assert len(service.asked) == 1


@pytest.mark.parametrize("verb", ["get", "head"])
@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=-1)])
def test_sets_its_clock_by_the_service(service: Scripted, verb: str, ahead: timedelta) -> None:
    """Where the clocks differ, the service's counts, from the second request on."""

    def refuse(asked: Asked) -> Said | None:
        theirs = datetime.now(UTC) + ahead
        ours = datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%S%z")
        if abs(theirs - ours) < timedelta(minutes=5):
            return None
        return error(403, "RequestTimeTooSkewed", Date=format_datetime(theirs, usegmt=True))

    service.refuse = refuse
    store = service.store(**KEYS)
    for _ in range(2):
        getattr(store, verb)("a")
    assert len(service.asked) == (3 if verb == "get" else 4)  # HEAD does not say why


def test_ranges_of_one_object_share_signatures(service: Scripted) -> None:
    """Signing each would cost as much as the rest of a small range; all are of the last seconds."""
    store = service.store(**KEYS)
    made = _proof.cache_info().misses
    for start in range(4):
        for _ in range(10):
            store.get_ranges("a", [(start, 4)])
    assert _proof.cache_info().misses <= made + 2  # as a moment may end meanwhile
    assert len(set(service.header("range"))) == 4
    assert len(set(service.header("authorization"))) <= 2
    for stamp in service.header("x-amz-date"):
        ago = datetime.now(UTC) - datetime.strptime(stamp, "%Y%m%dT%H%M%S%z")
        assert timedelta() <= ago < timedelta(seconds=60)


def test_a_clock_that_is_never_right_is_an_error(service: Scripted) -> None:
    """A service that goes on refusing is not asked for ever."""
    late = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    service.refuse = lambda _: error(403, "RequestTimeTooSkewed", Date=late)
    with pytest.raises(AccessDeniedError, match="RequestTimeTooSkewed"):
        service.store(**KEYS).get("a")
    assert len(service.asked) == 2


# --- credentials that run out ---------------------------------------------------------------------


class _Source:
    """A function of options that counts its calls, and gives another token each time."""

    def __init__(self, url: str, *, stuck: bool = False) -> None:
        self.url = url
        self.stuck = stuck
        self.calls = 0
        self.guard = threading.Lock()

    def __call__(self) -> dict[str, str]:
        with self.guard:
            self.calls += 1
            number = 1 if self.stuck else self.calls
        return {
            "endpoint_url": self.url,
            "access_key_id": f"id-{number}",
            "secret_access_key": f"secret-{number}",
            "session_token": f"token-{number}",
        }


@pytest.mark.parametrize("verb", ["get", "head"])
@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")])
def test_eight_threads_renew_once(service: Scripted, verb: str, status: int, code: str) -> None:
    """When a token runs out under many threads, one asks for the next and all go on."""
    valid = "token-1"

    def refuse(asked: Asked) -> Said | None:
        return None if asked.headers["x-amz-security-token"] == valid else error(status, code)

    service.refuse = refuse
    source = _Source(service.server.url)
    store = S3Store.at("s3://data", source)
    read = getattr(store, verb)
    with ThreadPoolExecutor(8) as pool:
        for number in (1, 2):
            valid = f"token-{number}"
            results = list(pool.map(lambda _: read("a"), range(64)))
            assert len(results) == 64
            assert source.calls == number
    # No signature mixes the keys of two answers.
    for asked in service.asked:
        token = asked.headers["x-amz-security-token"]
        assert token.replace("token", "Credential=id") + "/" in asked.headers["authorization"]


def test_a_token_that_stays_expired_is_refused_at_once(service: Scripted) -> None:
    """Where no other credentials come, the error says so and nothing is asked twice over."""
    service.refuse = lambda _: error(400, "ExpiredToken")
    store = S3Store.at("s3://data", _Source(service.server.url, stuck=True))
    with pytest.raises(AccessDeniedError, match="ExpiredToken") as caught:
        store.get("a")
    assert len(service.asked) <= 2
    for secret in ("id-1", "secret-1", "token-1"):
        assert secret not in str(caught.value)
        assert secret not in repr(store)
        assert secret.encode() not in pickle.dumps(caught.value)


# --- no credentials -------------------------------------------------------------------------------


@pytest.fixture
def no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide botocore."""
    for name in ("botocore", "botocore.session", "botocore.exceptions", "boto3"):
        monkeypatch.setitem(sys.modules, name, None)


def test_reads_unsigned_without_credentials(service: Scripted) -> None:
    """Where nobody has keys, public data is read without a signature."""
    assert service.store().get("a") == b"body"
    assert service.header("authorization") == [""]


@pytest.mark.usefixtures("no_boto3")
def test_without_boto3_the_environment_still_counts(
    service: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys in the environment need no package, and neither do public data."""
    store = service.store()
    assert store.get("a") == b"body"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert store.get("a") == b"body"
    assert [bool(value) for value in service.header("authorization")] == [False, True]


@pytest.mark.usefixtures("no_boto3")
def test_a_refusal_without_boto3_names_the_extra(service: Scripted) -> None:
    """Who is refused for want of keys learns which package would find them elsewhere."""
    service.refuse = lambda _: error(403, "AccessDenied")
    with pytest.raises(AccessDeniedError, match=r"not signed.*boto3.*streaming-core\[s3\]"):
        service.store().get("a")


@pytest.mark.parametrize(
    ("options", "told"), [({"anonymous": True}, "anonymous"), ({}, "storage_options and environ")]
)
def test_a_refusal_says_that_nothing_was_signed(
    service: Scripted, options: dict[str, Any], told: str
) -> None:
    """The error of a request without a signature says why it had none."""
    service.refuse = lambda _: error(403, "AccessDenied")
    with pytest.raises(AccessDeniedError, match=f"AccessDenied.*not signed.*{told}"):
        service.store(**options).get("a")


@pytest.mark.parametrize("missing", ["access_key_id", "secret_access_key"])
def test_half_of_a_pair_of_keys_is_an_error(service: Scripted, missing: str) -> None:
    """One key without the other is not taken for none."""
    options = {name: value for name, value in KEYS.items() if name != missing}
    with pytest.raises(AccessDeniedError, match="lack the"):
        service.store(**options).get("a")
    assert not service.asked


# --- what refusals mean ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "head", "list", "put", "put_large", "delete"])
def test_a_missing_bucket_is_no_missing_object(moto_server: S3Server, verb: str) -> None:
    """What does not exist is the bucket, and the error names it and where it was looked for."""
    store = S3Store.at("s3://never-made/x", moto_server.options())
    verbs: dict[str, Callable[[], Any]] = {
        "get": lambda: store.get("a"),
        "head": lambda: store.head("a"),
        "list": lambda: list(store.list()),
        "put": lambda: store.put("a", [b""]),
        "put_large": lambda: store.put("a", [bytes(17 << 20)]),
        "delete": lambda: store.delete("a"),
    }
    with pytest.raises(StoreError, match=f"no bucket 'never-made' at {moto_server.url}") as caught:
        verbs[verb]()
    assert not isinstance(caught.value, ObjectNotFoundError)
    assert is_final(caught.value)


def test_a_missing_bucket_is_looked_for_where_the_endpoint_says(service: Scripted) -> None:
    """Its path included, which is the likeliest to be wrong."""
    service.refuse = lambda _: error(404, "NoSuchBucket")
    store = service.store(**KEYS, endpoint_url=f"{service.server.url}/wrong/")
    with pytest.raises(StoreError, match=f"no bucket 'data' at {service.server.url}/wrong;"):
        store.get("a")


def test_asks_once_whether_the_bucket_is_there(service: Scripted) -> None:
    """A missing object costs one request more at most, until the bucket has answered once."""
    store = service.store()
    with pytest.raises(ObjectNotFoundError):
        store.head("absent")
    assert [asked.method for asked in service.asked] == ["HEAD", "GET"]
    store.get("a")
    service.asked.clear()
    with pytest.raises(ObjectNotFoundError):
        store.head("absent")
    assert [asked.method for asked in service.asked] == ["HEAD"]


def test_a_busy_service_says_for_how_long(service: Scripted) -> None:
    """`SlowDown` is no failure for good, and its `Retry-After` is kept."""
    service.refuse = lambda _: error(503, "SlowDown", Retry_After="7")
    with pytest.raises(StoreBusyError, match="SlowDown") as caught:
        service.store().get("a")
    assert caught.value.retry_after == 7
