"""Keys from Amazon's chain: asked for once, shared with children, renewed in time."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.web import Asked, Said, WebServer

from streaming_core._store._http import Call
from streaming_core._store._s3 import S3Store
from streaming_core._store._s3._credentials import _chain, _Known
from streaming_core._store._s3._sign import Keys
from streaming_core.errors import AccessDeniedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import SimpleQueue
    from pathlib import Path


class _Service:
    """Objects for whoever has the token of now, and a metadata service that gives it."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.life = timedelta(hours=6)
        self.number = 1
        self.num_asked = 0
        self.last_token = ""
        server.files.put("data/a", b"body")
        server.answer = self._answer

    def _answer(self, asked: Asked) -> Said | None:
        if asked.path == "/keys":
            self.num_asked += 1
            ends = (datetime.now(UTC) + self.life).strftime("%Y-%m-%dT%H:%M:%SZ")
            keys = {"AccessKeyId": "id", "SecretAccessKey": "secret", "Expiration": ends}
            return Said(200, json.dumps({**keys, "Token": f"token-{self.number}"}).encode())
        self.last_token = asked.headers.get("x-amz-security-token", "")
        if self.last_token == f"token-{self.number}":
            return None
        return Said(400, b"<Error><Code>ExpiredToken</Code></Error>")

    def store(self) -> S3Store:
        return S3Store.at("s3://data", {"endpoint_url": self.server.url})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Service]:
    """Return a service whose keys come from a metadata service only."""
    with WebServer() as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/keys")
        yield _Service(server)


def test_threads_ask_once_and_again_when_keys_run_out(service: _Service) -> None:
    """Eight threads ask the metadata service once, and once more when the keys are refused."""
    store = service.store()
    for number in (1, 2):
        service.number = number
        for profile, known in [*_chain.known.items()]:
            _chain.known[profile] = known._replace(asked=known.asked - 60)  # as if a while ago
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: store.get("a"), range(64))) == {b"body"}
        assert service.num_asked == number


def _read(store: S3Store, found: SimpleQueue[bytes]) -> None:
    found.put(store.get("a"))


@pytest.mark.process
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_do_not_ask(service: _Service, method: str) -> None:
    """Workers use the keys that their parent has got."""
    store = service.store()
    store.get("a")
    context: Any = multiprocessing.get_context(method)
    found: SimpleQueue[bytes] = context.SimpleQueue()
    children = [context.Process(target=_read, args=(store, found)) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the server's threads stay here
        for child in children:
            child.start()
    assert [found.get() for _ in children] == [b"body"] * 3
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert service.num_asked == 1


def test_keys_that_end_soon_are_not_asked_for_with_each_request(service: _Service) -> None:
    """A service that gives keys for a minute only is asked once a second at the most."""
    service.life = timedelta(seconds=60)
    store = service.store()
    began = time.monotonic()
    for _ in range(50):
        store.get("a")
    # The library behind the chain may ask twice where we ask once.
    assert service.num_asked <= 2 * (2 + time.monotonic() - began)


# --- a program that gives keys --------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that counts the calls of the profile `mine`'s program; it may be broken."""
    calls, script = tmp_path / "calls", tmp_path / "give-keys"
    keys = {"Version": 1, "AccessKeyId": "of-mine", "SecretAccessKey": "s"}
    script.write_text(
        f"#!/bin/sh\ntest -e {tmp_path}/broken && exit 3\necho >> {calls}\n"
        f"echo '{json.dumps(keys)}'\n"
    )
    script.chmod(0o755)
    config = tmp_path / "config"
    config.write_text(f"[profile mine]\ncredential_process = {script}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    return calls


def _credential(store: S3Store) -> str:
    call = store._s3.signed(Call("GET", "/a"))
    return call.headers["Authorization"].partition("Credential=")[2].partition("/")[0]


@pytest.mark.process
def test_a_profile_counts_before_the_environment(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names a profile gets its keys, asked for once; without, the environment goes first."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    mine = [S3Store.at("s3://data", {"profile": "mine"}) for _ in range(3)]
    assert {_credential(store) for store in mine} == {"of-mine"}
    assert len(program.read_text()) == 1
    assert _credential(S3Store.at("s3://data")) == "of-environment"
    both = {"access_key_id": "of-options", "secret_access_key": "s", "profile": "mine"}
    assert _credential(S3Store.at("s3://data", both)) == "of-options"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert _credential(S3Store.at("s3://data")) == "of-mine"


def test_a_profile_that_is_not_there_is_an_error() -> None:
    """A wrong profile is not taken for no credentials."""
    with pytest.raises(AccessDeniedError, match="no profile 'absent'"):
        S3Store.at("s3://data", {"profile": "absent"}).get("a")


@pytest.mark.process
def test_a_program_that_fails_is_an_error_that_may_pass(program: Path) -> None:
    """The failure of a program is told, and it is asked again with the next request."""
    broken = program.with_name("broken")
    broken.touch()
    store = S3Store.at("s3://data", {"profile": "mine"})
    with pytest.raises(StoreError, match="profile 'mine' could not be got") as caught:
        store.get("a")
    assert not isinstance(caught.value, AccessDeniedError)
    broken.unlink()
    assert _credential(store) == "of-mine"


@pytest.mark.process
def test_keys_that_still_hold_outlive_a_failed_renewal(program: Path) -> None:
    """Where the next keys cannot be got two minutes ahead, the present ones go on serving."""
    program.with_name("broken").touch()
    store = S3Store.at("s3://data", {"profile": "mine"})
    now = time.time()
    _chain.known["mine"] = _Known(Keys("of-before", "s"), now - 3600, now + 100)
    assert _credential(store) == "of-before"
    _chain.known["mine"] = _Known(Keys("of-before", "s"), now - 3600, now - 1)
    with pytest.raises(StoreError, match="could not be got"):
        _credential(store)


def test_nobody_waits_while_one_renews_keys_that_still_hold() -> None:
    """Keys that end in a minute are used while another thread asks for the next."""
    now = time.time()
    _chain.known[""] = _Known(Keys("of-before", "s"), now - 3600, now + 60)
    with _chain.lock:
        assert _credential(S3Store.at("s3://data")) == "of-before"


@pytest.mark.process
def test_forked_children_get_a_lock_of_their_own(service: _Service) -> None:
    """A thread that asks while another forks leaves the child able to ask."""
    store = service.store()
    with _chain.lock:
        pid = os.fork()
        if not pid:
            os._exit(0 if store.get("a") == b"body" else 1)
    assert os.waitpid(pid, 0)[1] == 0
