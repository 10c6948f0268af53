"""Who we are at Azure: what is given, found, kept, renewed, and never shown."""

from __future__ import annotations

import base64
import itertools
import json
import multiprocessing
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.azure.reading import read
from tests.servers.azure import Azurite, azurite
from tests.servers.tls import Certificates, make_certificates
from tests.servers.web import Asked, Said, WebServer

from streaming_core import open_store
from streaming_core._store import is_final
from streaming_core._store._azure import _credentials as module
from streaming_core._store._azure._credentials import Credentials, SharedKey, Signature, Token
from streaming_core._store._http import Call
from streaming_core._store._options import Options
from streaming_core.errors import AccessDeniedError, SchemaError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming_core._store import Store

_KEY = base64.b64encode(b"a secret key").decode()
_SECRETS = ("account_key", "connection_string", "sas_token", "token")


class Identity:
    """The endpoint of a managed identity, which gives one token after the other."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.make: Callable[[int], str] = "token-{}".format
        self.life_seconds = 3600
        self.refuse = False
        self.before: Callable[[int], object] = lambda number: number
        self._guard = threading.Lock()

    def __call__(self, asked: Asked) -> Said:
        """Answer as the endpoint does."""
        with self._guard:
            number = len(self.tokens)
            self.tokens.append(self.make(number))
        self.before(number)
        if self.refuse:
            return Said(400, b'{"error": "invalid_request"}', _JSON)
        assert "storage.azure.com" in asked.target
        document = {
            "access_token": self.tokens[number],
            "expires_on": str(int(time.time()) + self.life_seconds),
            "resource": "https://storage.azure.com",
            "token_type": "Bearer",
        }
        return Said(200, json.dumps(document).encode(), _JSON)


_JSON = {"Content-Type": "application/json"}


class Service:
    """A blob service with one blob, which takes some tokens."""

    def __init__(self) -> None:
        self.accepted = {"Bearer token-0"}
        self.seen: list[str] = []

    def __call__(self, asked: Asked) -> Said:
        """Give the blob to whom it is for."""
        who = asked.headers.get("authorization", "")
        self.seen.append(who)
        if who in self.accepted:
            return Said(200, b"body", {"ETag": '"1"'})
        code = "InvalidAuthenticationInfo" if who else "NoAuthenticationInformation"
        return Said(401, b"", {"x-ms-error-code": code})


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[Identity]:
    """Let Azure's chain find a managed identity of this machine, and this process no token yet."""
    answer = Identity()
    monkeypatch.setattr(module._identity, "found", module._Found())
    with WebServer(answer=answer) as server:
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        yield answer


@pytest.fixture
def service() -> Iterator[tuple[Service, Store]]:
    """Return a blob service and the store of a container there."""
    answer = Service()
    with WebServer(answer=answer) as server:
        yield answer, open_store("az://data", {"endpoint_url": f"{server.url}/acct"})


def _at_once(store: Store, times: int = 8) -> list[bytes]:
    start = threading.Barrier(times)

    def get(_: int) -> bytes:
        start.wait(60)
        return store.get("a")

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(get, range(times)))


# --- the token of Azure's chain -------------------------------------------------------------------


def test_eight_threads_ask_for_one_token(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """The first request of a process asks; all others use the token, in all stores."""
    answer, store = service
    assert _at_once(store) == [b"body"] * 8
    assert store.child("folder").get("a") == b"body"
    assert (identity.tokens, {*answer.seen}) == (["token-0"], {"Bearer token-0"})


def test_a_refused_token_is_renewed_once(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """Eight threads that are refused at one moment ask for one other token, and go on."""
    answer, store = service
    assert store.get("a") == b"body"
    answer.accepted = {"Bearer token-1"}
    assert _at_once(store) == [b"body"] * 8
    assert identity.tokens == ["token-0", "token-1"]


def test_a_token_that_stays_refused_is_denied(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """One other token is tried for a request, not more; no error shows any."""
    answer, store = service
    answer.accepted = set()
    with pytest.raises(AccessDeniedError, match="InvalidAuthenticationInfo") as caught:
        store.get("a")
    assert identity.tokens == ["token-0", "token-1"]
    assert "token-" not in str(caught.value)


@pytest.mark.parametrize(("life", "early"), [(3600, 300), (100, 50)])
def test_a_token_is_renewed_before_it_ends(
    identity: Identity, service: tuple[Service, Store], life: int, early: int
) -> None:
    """Five minutes early, or in the second half of a short life."""
    identity.life_seconds = life
    ends = time.time() + life
    assert service[1].get("a") == b"body"
    assert module._identity.found.until == pytest.approx(ends - early, abs=30)
    module._identity.found = module._identity.found._replace(until=0.0)
    service[0].accepted = {"Bearer token-1"}
    assert service[1].get("a") == b"body"


def test_a_token_is_used_to_its_end_where_none_comes_instead(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """Who cannot renew early goes on; after the end it is an error that may pass, not 'nobody'."""
    assert service[1].get("a") == b"body"
    identity.refuse = True
    module._identity.found = module._identity.found._replace(until=0.0)
    assert service[1].get("a") == b"body"
    assert service[1].get("a") == b"body"
    assert len(identity.tokens) == 2
    module._identity.found = module._identity.found._replace(until=0.0, ends=0.0)
    with pytest.raises(StoreError, match="token for Azure storage could not be had") as caught:
        service[1].get("a")
    assert not is_final(caught.value)
    identity.refuse = False
    service[0].accepted = {"Bearer token-3"}
    assert service[1].get("a") == b"body"


@pytest.mark.process
def test_forked_children_have_their_parents_token(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """A child does not ask; nor does a lock hinder it that a thread of its parent holds."""
    assert service[1].get("a") == b"body"
    with module._identity.lock:
        assert _run("fork", service[1]) == 0
    assert identity.tokens == ["token-0"]


@pytest.mark.process
def test_a_child_that_was_forked_while_its_parent_asked_asks_itself(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """The answer that its parent waits for will not come to the child."""
    asking, go_on = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        if number == 0:
            asking.set()
            go_on.wait(60)

    identity.before = wait
    service[0].accepted = {"Bearer token-0", "Bearer token-1"}
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(service[1].get, "a")
        try:
            assert asking.wait(60)
            assert _run("fork", service[1]) == 0
        finally:
            go_on.set()
        assert got.result(60) == b"body"


@pytest.mark.process
def test_spawned_workers_are_given_the_token(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """A process that multiprocessing starts has it from its pickle, and no other pickle has it."""
    assert service[1].get("a") == b"body"
    assert _run("spawn", service[1]) == 0
    assert identity.tokens == ["token-0"]
    assert b"token-0" not in pickle.dumps(service[1])


def _run(method: str, store: Store) -> int | None:
    process: Any = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
        target=read, args=(store, b"body")
    )
    with warnings.catch_warnings():
        # That a fork copies no threads is what the tests are about.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return int(process.exitcode)


def test_where_nobody_is_found_nobody_asks_again_soon(
    identity: Identity, service: tuple[Service, Store]
) -> None:
    """Requests then go without credentials; what is refused says what is missing."""
    identity.refuse = True
    for _ in range(3):
        with pytest.raises(AccessDeniedError, match="no credentials: give the storage option"):
            service[1].get("a")
    assert len(identity.tokens) == 1
    service[0].accepted = {""}
    assert service[1].get("a") == b"body"


def test_without_azure_identity_the_error_says_so(
    service: tuple[Service, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is optional: anonymous reading works, and a refusal names the extra."""
    monkeypatch.setattr(module._identity, "found", module._Found())
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(AccessDeniedError, match=r"streaming-core\[azure\]"):
        service[1].get("a")
    service[0].accepted = {""}
    assert service[1].get("a") == b"body"


def test_a_token_is_not_sent_where_others_could_read_it() -> None:
    """Without TLS a token goes to this machine only; nothing is even connected to."""
    options = {"endpoint_url": "http://files.invalid/acct", "token": "text"}
    with pytest.raises(StoreError, match=r"anyone on the way.*https://"):
        open_store("az://data", options).get("a")


# --- a real emulator that judges tokens -----------------------------------------------------------


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Azurite, Certificates]]:
    """Return an emulator that speaks TLS and takes tokens."""
    folder = tmp_path_factory.mktemp("azurite-tls")
    made = make_certificates(folder)
    with azurite(folder, cert=made.certificate, key=made.key) as running:
        yield running, made


def _jwt(ends: float) -> str:
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 7200,
        "nbf": now - 7200,
        "exp": int(ends),
    }
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*texts, b"c2lnbmF0dXJl"]).decode()


@pytest.mark.server
@pytest.mark.xdist_group("azurite")
def test_an_expired_token_is_renewed_once_at_the_emulator(
    identity: Identity, secure: tuple[Azurite, Certificates]
) -> None:
    """An emulator that reads the token's times refuses the first and takes the second, over TLS."""
    emulator, made = secure
    options: dict[str, Any] = {"endpoint_url": emulator.endpoint, "ca_file": str(made.ca_file)}
    keyed: Any = open_store("az://data", {**options, "account_key": emulator.key})
    keyed._gate.send(Call("PUT", "", {"restype": "container"})).close()
    keyed.put("a", [b"body"])
    identity.make = lambda number: _jwt(time.time() + (-600 if number == 0 else 3600))
    assert _at_once(open_store("az://data", options)) == [b"body"] * 8
    assert len(identity.tokens) == 2
    given = {**options, "token": _jwt(time.time() + 600)}
    assert open_store("az://data", given).get("a") == b"body"
    with pytest.raises(AccessDeniedError) as caught:
        open_store("az://data", {**options, "token": _jwt(time.time() - 600)}).get("a")
    assert "eyJ" not in str(caught.value)


# --- which of all ---------------------------------------------------------------------------------


def _proof(options: dict[str, Any], account: str = "acct") -> object:
    known = ("account_name", "anonymous", "endpoint_url")
    return Credentials(account, Options(options, known=known, secret=_SECRETS)).proof()


_GIVEN = {
    "anonymous": (True, None),
    "account_key": (_KEY, SharedKey(b"a secret key")),
    "sas_token": ("?sp=r&sig=a%2Bb%3D", Signature((("sp", "r"), ("sig", "a+b=")))),
    "token": ("text", Token("text")),
    "connection_string": (f"AccountName=acct;AccountKey={_KEY}", SharedKey(b"a secret key")),
}


def test_what_is_given_comes_before_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of options the documented order holds; the environment is asked after all of them."""
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig=environment")
    for count in range(1, len(_GIVEN) + 1):
        for names in itertools.combinations(_GIVEN, count):
            proof = _proof({name: _GIVEN[name][0] for name in names})
            assert proof == _GIVEN[names[0]][1], names
    assert _proof({}) == Signature((("sig", "environment"),))


@pytest.mark.parametrize(
    "name", ["AZURE_ACCOUNT_ACCESS_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"]
)
def test_keys_of_the_environment_are_for_its_account(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key beside the name of another account is not used."""
    monkeypatch.setattr(module._identity, "found", module._Found(None, float("inf")))
    monkeypatch.setenv(name, _KEY)
    assert _proof({}) == SharedKey(b"a secret key")
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", "acct")
    assert _proof({}) == SharedKey(b"a secret key")
    assert _proof({}, "another") is None
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=third;AccountKey=eHg=")
    assert _proof({}) == SharedKey(b"a secret key")
    assert _proof({}, "third") == SharedKey(b"xx")


@pytest.mark.parametrize(
    "options", [{"account_key": "no base64: äöü"}, {"sas_token": "sv=1&secret-text"}]
)
def test_what_cannot_be_a_secret_is_refused_without_showing_it(options: dict[str, str]) -> None:
    """A key that is none is `SchemaError`; nothing of it is in the message."""
    with pytest.raises(SchemaError, match="not shown") as caught:
        open_store("az://data", {"account_name": "acct", **options}).get("a")
    assert "äöü" not in str(caught.value)
    assert "secret-text" not in str(caught.value)


@pytest.mark.parametrize("name", _SECRETS)
def test_secrets_stay_in_the_process(name: str) -> None:
    """No repr and no pickle has a secret; a copy that needs it says how to bring it."""
    text = str(_GIVEN[name][0])
    store: Any = open_store("az://data", {"account_name": "acct", name: text})
    pickled = pickle.dumps(store)
    assert text.encode() not in pickled
    for shown in (store, store._gate._credentials.proof(), store._gate._credentials._options):
        assert text not in repr(shown)
        assert _KEY not in repr(shown)
    with pytest.raises(AccessDeniedError, match=f"{name}.*function"):
        pickle.loads(pickled).get("a")
