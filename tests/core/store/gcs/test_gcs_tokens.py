"""Access tokens: where they come from, how often they are asked for, who gets to see them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.gcs.accounts import TokenService
from tests.servers.web import Said

from streaming_core._store._gcs import GCSStore, _tokens
from streaming_core.errors import (
    AccessDeniedError,
    MissingExtraError,
    SchemaError,
    StoreError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.gcs_rules import GoogleRules

_SECONDS = 60.0


@pytest.fixture
def service(rules: GoogleRules) -> Iterator[TokenService]:
    """Return a token service; the store knows its first token, and has the object `a`."""
    rules.tokens = {"token-1"}
    rules.objects["a"] = b"body", 1
    with TokenService() as service:
        yield service


@pytest.fixture
def store(rules: GoogleRules, service: TokenService) -> GCSStore:
    """Return a store for a service account."""
    options = {"endpoint_url": rules.url, "service_account_info": service.account()}
    return GCSStore.at("gs://bucket", options)


# --- how often ------------------------------------------------------------------------------------


def test_a_token_is_asked_for_once(store: GCSStore, service: TokenService) -> None:
    """Any number of requests, threads, children and equal stores make do with one token."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.child("x")._rooted("").get("a"), range(40)))
    assert found == [b"body"] * 40
    assert service.count == 1


def test_an_expired_token_is_renewed_once(
    store: GCSStore, service: TokenService, rules: GoogleRules
) -> None:
    """Eight threads whose token was refused ask for one other, and go on."""
    assert store.get("a") == b"body"
    rules.tokens = {"token-2"}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.get("a"), range(64)))
    assert found == [b"body"] * 64
    assert service.count == 2


def test_a_function_is_called_again_once(rules: GoogleRules) -> None:
    """A function that gives tokens is asked once more where one has expired, for all threads."""
    rules.objects["a"] = b"body", 1
    rules.tokens = {"given-1"}
    calls: list[None] = []

    def options() -> dict[str, str]:
        calls.append(None)
        return {"endpoint_url": rules.url, "token": f"given-{len(calls)}"}

    store = GCSStore.at("gs://bucket", options)
    assert store.get("a") == b"body"
    rules.tokens = {"given-2"}
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: store.get("a"), range(64))) == [b"body"] * 64
    assert len(calls) == 2


def test_an_old_refusal_does_not_cost_a_new_token(
    store: GCSStore, service: TokenService, rules: GoogleRules
) -> None:
    """A request that was refused long ago finds the token that others got meanwhile."""
    assert store.get("a") == b"body"
    is_slow, go_on = threading.Event(), threading.Event()

    def before(asked: Any) -> Said | None:
        if asked.headers["authorization"] == "Bearer token-1" and asked.path.endswith("slow"):
            is_slow.set()
            assert go_on.wait(_SECONDS)
            return Said(401)
        return None

    rules.before = before
    rules.objects["slow"] = b"late", 2
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(store.get, "slow")
        assert is_slow.wait(_SECONDS)
        rules.tokens = {"token-2"}
        assert store.get("a") == b"body"
        go_on.set()
        assert late.result(_SECONDS) == b"late"
    assert service.count == 2


def test_a_token_that_stays_refused_is_an_error(
    store: GCSStore, service: TokenService, rules: GoogleRules
) -> None:
    """One other token is tried, not more, and the error is about access."""
    rules.tokens = set()
    with pytest.raises(AccessDeniedError, match="401"):
        store.get("a")
    assert service.count == 2
    assert len(rules.asked) == 2


def test_a_token_is_renewed_before_it_ends(
    store: GCSStore, service: TokenService, rules: GoogleRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token in its last minutes is replaced without a refusal."""
    assert store.get("a") == b"body"
    later = time.time() + 3600 - 60
    monkeypatch.setattr("streaming_core._store._gcs._tokens.time.time", lambda: later)
    rules.tokens = {"token-2"}
    assert store.get("a") == b"body"
    assert len(rules.asked) == 2
    assert service.count == 2


def test_a_token_service_that_is_down_is_no_harm_yet(
    store: GCSStore, service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for early may fail; the service is then left alone for a while."""
    service.seconds = 100  # less than the time before the end at which another is asked for
    assert store.get("a") == b"body"
    identity = next(iter(_tokens._identities.values()))
    identity.quiet_until = 0.0
    asked: list[None] = []

    def before() -> Said:
        asked.append(None)
        return Said(400, b'{"error": "invalid_grant"}')

    service.before = before
    assert [store.get("a") for _ in range(5)] == [b"body"] * 5
    assert len(asked) == 1
    later = time.time() + 200
    monkeypatch.setattr("streaming_core._store._gcs._tokens.time.time", lambda: later)
    with pytest.raises(AccessDeniedError, match="invalid_grant"):
        store.get("a")


# --- processes ------------------------------------------------------------------------------------


def _forked(work: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join(_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


@pytest.mark.process
def test_forked_children_use_their_parents_token(store: GCSStore, service: TokenService) -> None:
    """Children do not ask again."""
    assert store.get("a") == b"body"
    assert [_forked(lambda: store.get("a")) for _ in range(3)] == [0, 0, 0]
    assert service.count == 1


@pytest.mark.process
def test_a_fork_while_a_token_is_asked_for_does_not_hang(
    store: GCSStore, service: TokenService, rules: GoogleRules
) -> None:
    """A child of that moment inherits no lock that is held, and asks by itself."""
    rules.tokens = {"token-1", "token-2"}
    is_asked, go_on = threading.Event(), threading.Event()

    def before() -> None:
        if not is_asked.is_set():
            is_asked.set()
            assert go_on.wait(_SECONDS)

    service.before = before
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "a")
        try:
            assert is_asked.wait(_SECONDS)
            assert _forked(lambda: store.get("a")) == 0
        finally:
            go_on.set()
        assert waiting.result(_SECONDS) == b"body"
    assert service.count == 2


def _get(store: GCSStore) -> None:
    assert store.get("a") == b"body"


@pytest.mark.process
def test_spawned_children_are_given_the_token(store: GCSStore, service: TokenService) -> None:
    """A worker process that is started anew has the account and the token, and does not ask."""
    assert store.get("a") == b"body"
    process = multiprocessing.get_context("spawn").Process(target=_get, args=(store,))
    process.start()
    process.join(_SECONDS)
    assert process.exitcode == 0
    assert service.count == 1


def test_no_other_pickle_has_a_secret(store: GCSStore, service: TokenService) -> None:
    """Neither key nor token is in a pickle; a copy says what it lacks."""
    assert store.get("a") == b"body"
    data = pickle.dumps(store)
    assert b"token-1" not in data
    assert b"PRIVATE" not in data
    with pytest.raises(AccessDeniedError, match="service_account_info"):
        pickle.loads(data).get("a")
    assert service.count == 1


# --- where from -----------------------------------------------------------------------------------


def test_a_service_account_may_be_a_file_or_text(
    rules: GoogleRules, service: TokenService, tmp_path: Path
) -> None:
    """The key is taken as a file, a mapping and as JSON."""
    rules.tokens = {"token-1", "token-2"}
    for option in (
        {"service_account_file": str(service.account_file(tmp_path))},
        {"service_account_info": json.dumps(service.account())},
    ):
        store = GCSStore.at("gs://bucket", {"endpoint_url": rules.url, **option})
        assert store.get("a") == b"body"


def test_the_environment_names_an_account(
    rules: GoogleRules, service: TokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`GOOGLE_APPLICATION_CREDENTIALS` is found without any option."""
    path = service.account_file(tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    assert GCSStore.at("gs://bucket", {"endpoint_url": rules.url}).get("a") == b"body"


def test_a_machine_of_google_has_an_account(
    rules: GoogleRules, service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata server of a machine is asked where nothing else is known."""
    monkeypatch.delenv("NO_GCE_CHECK")
    for module in ("google.auth.compute_engine._metadata", "google.auth._default"):
        __import__(module)
    metadata = sys.modules["google.auth.compute_engine._metadata"]
    for name, value in vars(metadata).items():
        if isinstance(value, str) and "169.254.169.254" in value:
            monkeypatch.setattr(metadata, name, value.replace("169.254.169.254", service.host))
        elif isinstance(value, str) and "metadata.google.internal" in value:
            monkeypatch.setattr(
                metadata, name, value.replace("metadata.google.internal", service.host)
            )
    monkeypatch.setenv("GCE_METADATA_HOST", service.host)
    monkeypatch.setenv("GCE_METADATA_IP", service.host)
    assert GCSStore.at("gs://bucket", {"endpoint_url": rules.url}).get("a") == b"body"
    assert service.count == 1


def test_without_credentials_requests_have_no_token(rules: GoogleRules) -> None:
    """Public data can be read by nobody; a refusal says where credentials would be looked for."""
    rules.objects["a"] = b"body", 1
    store = GCSStore.at("gs://bucket", {"endpoint_url": rules.url})
    assert store.get("a") == b"body"
    assert "authorization" not in rules.asked[0].headers
    rules.tokens = {"another"}
    with pytest.raises(AccessDeniedError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        store.get("a")


def test_nobody_is_asked_where_nobody_is_wanted(
    rules: GoogleRules, service: TokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`anonymous`, and an emulator that the environment names, need no token."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service.account_file(tmp_path)))
    rules.tokens = None
    assert GCSStore.at("gs://bucket", {"endpoint_url": rules.url, "anonymous": True}).get("a")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rules.url.removeprefix("http://"))
    assert GCSStore.at("gs://bucket").get("a") == b"body"
    assert service.count == 0
    assert not any("authorization" in asked.headers for asked in rules.asked)


def test_a_package_that_is_missing_is_named(
    rules: GoogleRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without google-auth the error names the extra, and what does not need it works."""
    rules.objects["a"] = b"body", 1
    for name in ["google.auth", *sys.modules]:
        if name.split(".")[:2] == ["google", "auth"]:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"streaming-core\[gcs\]"):
        GCSStore.at("gs://bucket", {"endpoint_url": rules.url}).get("a")
    for option in ({"anonymous": True}, {"token": "given"}):
        assert GCSStore.at("gs://bucket", {"endpoint_url": rules.url, **option}).get("a")


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_named(
    rules: GoogleRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that cannot be read is an error about access, which nobody tries again."""
    path = str(tmp_path / "absent.json")
    store = GCSStore.at("gs://bucket", {"endpoint_url": rules.url, "service_account_file": path})
    with pytest.raises(AccessDeniedError, match=r"absent\.json.*No such file"):
        store.get("a")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
    with pytest.raises(AccessDeniedError, match=r"GOOGLE_APPLICATION_CREDENTIALS.*absent\.json"):
        GCSStore.at("gs://bucket", {"endpoint_url": rules.url}).get("a")


@pytest.mark.parametrize(
    "info", ["no json", "[1]", {"type": "service_account", "private_key": "PRIVATE"}]
)
def test_an_account_that_is_none_is_refused(rules: GoogleRules, info: object) -> None:
    """What is no key of a service account is a wrong option, and is not shown."""
    options = {"endpoint_url": rules.url, "service_account_info": info}
    with pytest.raises(SchemaError) as caught:
        GCSStore.at("gs://bucket", options).get("a")
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize("token", ["with space", "a\r\nHost: other", "ä"])
def test_a_token_that_is_none_is_not_sent(rules: GoogleRules, token: str) -> None:
    """A token with characters that no header takes is refused and not shown."""
    store = GCSStore.at("gs://bucket", {"endpoint_url": rules.url, "token": token})
    with pytest.raises(SchemaError) as caught:
        store.get("a")
    assert token not in str(caught.value)
    assert not rules.asked


def test_a_refused_account_is_an_error_about_access(store: GCSStore, service: TokenService) -> None:
    """What the token service says is told, without the key."""
    service.before = lambda: Said(400, b'{"error": "invalid_grant", "error_description": "gone"}')
    with pytest.raises(AccessDeniedError, match=r"invalid_grant.*gone") as caught:
        store.get("a")
    assert "PRIVATE" not in str(caught.value)


def test_a_token_service_that_hangs_up_may_be_asked_again(
    store: GCSStore, service: TokenService
) -> None:
    """No answer is an error that may pass, and the next request asks again."""
    service.before = lambda: Said(200, b"cut", length=100, hang_up=True)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1") as caught:
        store.get("a")
    assert not isinstance(caught.value, AccessDeniedError)
    service.before = None
    assert store.get("a") == b"body"


def test_no_secret_is_shown(rules: GoogleRules, caplog: pytest.LogCaptureFixture) -> None:
    """Neither URL, repr, log nor errors have the token, even where the service repeats it."""
    caplog.set_level(logging.DEBUG)
    rules.tokens = {"another"}
    store = GCSStore.at("gs://bucket/a", {"endpoint_url": rules.url, "token": "s3cr3t"})
    shown = [repr(store), store.url, repr(store._gate), repr(vars(store._gate))]
    for act in (lambda: store.get("a"), lambda: store.put("a", [b""]), lambda: list(store.list())):
        with pytest.raises(StreamingError) as caught:
            act()
        shown.append(repr(caught.value))
    assert any("authError" in text for text in shown)
    assert "s3cr3t" not in " ".join([*shown, caplog.text])
    assert b"s3cr3t" not in pickle.dumps(caught.value)
