"""The store of the Hugging Face Hub, against a hub in this process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.hf import LARGE_BYTES, Hub
from tests.servers.web import Said, in_turn

from streaming_core._store import RequestPolicy, open_store
from streaming_core._store._hf import HfStore
from streaming_core.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    SchemaError,
    StoreBusyError,
    StoreError,
)

_REPO = "datasets/owner/name"
_URL = f"hf://{_REPO}/folder"
_LARGE = bytes(range(256)) * (LARGE_BYTES // 256 + 1)


def _store(hub: Hub, url: str = _URL, **options: Any) -> HfStore:
    return HfStore.at(url, {"endpoint_url": hub.url, **options})


@pytest.mark.slow
class TestContract(MarkedContract):
    """The contract, by commits."""

    num_overwrites = 10
    unsupported = {  # noqa: RUF012 - as the base has it
        "shared-between-processes": "a store stays at the commit that it saw first, or made last"
    }

    @pytest.fixture
    def store(self, hub: Hub) -> HfStore:
        """Give the store of an empty folder."""
        return _store(hub)


# --- commits --------------------------------------------------------------------------------------


def test_all_reads_are_of_the_commit_that_was_seen_first(hub: Hub) -> None:
    """A revision that moves on changes nothing for a store in use; a new store sees it."""
    hub.commit(_REPO, {"folder/a": b"first", "folder/b": b"1"})
    store = _store(hub)
    assert store.get("a") == b"first"
    hub.commit(_REPO, {"folder/a": b"second", "folder/b": None})
    assert store.get("a") == b"first"
    assert [info.key for info in store.list()] == ["a", "b"]
    assert _store(hub).get("a") == b"second"


def test_the_revision_is_asked_for_once(hub: Hub) -> None:
    """Any number of reads, children and copies in other processes make one such request."""
    hub.commit(_REPO, {"folder/a": b"first", "folder/deep/b": b"1"})
    store = _store(hub)
    for _ in range(3):
        store.get("a")
    store.child("deep").get("b")
    patient = _store(hub).child("deep")
    assert patient.with_timeout(60.0).get("b") == patient.get("b") == b"1"
    assert hub.web.count("GET", f"/api/{_REPO}/revision/main") == 2
    copy: HfStore = pickle.loads(pickle.dumps(store))
    assert copy.with_timeout(60.0).get("a") == b"first"
    assert hub.web.count("GET", f"/api/{_REPO}/revision/main") == 2


@pytest.mark.process
def test_a_worker_process_begins_with_the_commit(hub: Hub) -> None:
    """A process that is started anew with the store reads what the first one saw."""
    hub.commit(_REPO, {"folder/a": b"first"})
    store = _store(hub)
    assert store.get("a") == b"first"
    hub.commit(_REPO, {"folder/a": b"second"})
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('a').decode())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=pickle.dumps(store), capture_output=True, timeout=60, check=True
    )
    assert done.stdout.strip() == b"first"
    assert hub.web.count("GET", f"/api/{_REPO}/revision/main") == 1


def test_reads_branches_commits_and_pull_requests(hub: Hub) -> None:
    """The revision of the URL, or of the option, is what is read; a commit needs no question."""
    first = hub.commit(_REPO, {"folder/a": b"first"})
    hub.commit(_REPO, {"folder/a": b"branched"}, "v1.0")
    hub.commit(_REPO, {"folder/a": b"asked"}, "refs/pr/1")
    hub.commit(_REPO, {"folder/a": b"second"})
    assert _store(hub, f"hf://{_REPO}@v1.0/folder").get("a") == b"branched"
    assert _store(hub, f"hf://{_REPO}@refs/pr/1/folder").get("a") == b"asked"
    assert _store(hub, revision="v1.0").get("a") == b"branched"
    asked = hub.web.count()
    assert _store(hub, f"hf://{_REPO}@{first}/folder").get("a") == b"first"
    assert hub.web.count() == asked + 1
    with pytest.raises(AccessDeniedError, match="a commit cannot be changed"):
        _store(hub, f"hf://{_REPO}@{first}/folder").put("a", [b"x"])


def test_url_round_trip(hub: Hub) -> None:
    """`open_store` takes a store's URL back, whatever the revision is called."""
    for url in (f"hf://{_REPO}", f"hf://{_REPO}@refs/pr/1/a/b", "hf://models/o/n/x", _URL):
        store = _store(hub, url)
        assert open_store(store.url) == store


def test_models_and_spaces_are_read_alike(hub: Hub) -> None:
    """The kinds of repository differ in their addresses only."""
    for repo in ("models/owner/net", "spaces/owner/app"):
        hub.revisions[repo] = {}
        hub.commit(repo, {"a": _LARGE})
        assert _store(hub, f"hf://{repo}").get("a") == _LARGE


@pytest.mark.parametrize(
    "url",
    ["hf://owner/name/file", "hf://datasets/owner", "hf://datasets", "hf://buckets/o/n", "hf://"],
)
def test_a_url_without_a_repository_is_refused(url: str) -> None:
    """The error shows how it is written."""
    with pytest.raises(SchemaError, match="hf://datasets/<owner>/<name>"):
        open_store(url)


# --- large files ----------------------------------------------------------------------------------


def test_large_files_come_from_elsewhere_without_our_token(hub: Hub) -> None:
    """The redirection is followed, the token stays with the hub, and the etag is the hub's."""
    hub.token = "hf_secret"  # noqa: S105 - of a hub in this process
    hub.commit(_REPO, {"folder/a": _LARGE})
    store = _store(hub, token="hf_secret")  # noqa: S106 - as above
    info = store.head("a")
    parts = store.get_ranges("a", [(0, 5), (99_000, 99_004), (-3, None)])
    assert parts == [_LARGE[:5], _LARGE[99_000:99_004], _LARGE[-3:]]
    assert store.get("a") == b"".join(map(bytes, store.stream("a"))) == _LARGE
    assert hub.strangers == []
    assert list(store.list()) == [info]
    assert parts.etag == info.etag
    assert len(info.etag) == 64
    assert hub.cdn.count("HEAD") == 0


def test_a_place_is_asked_for_once_and_anew_when_it_expires(hub: Hub) -> None:
    """Ranges of a large file go straight to where it lies, until the signature has run out."""
    hub.commit(_REPO, {"folder/a": _LARGE})
    store = _store(hub)
    path = f"/{_REPO}/resolve/{hub.revisions[_REPO]['main']}/folder/a"
    for start in range(5):
        assert store.get_ranges("a", [(start, start + 2)]) == [_LARGE[start : start + 2]]
    assert (hub.web.count("GET", path), hub.cdn.count()) == (1, 5)
    hub.expire()
    etag = store.get_ranges("a", [(7, 9)]).etag
    assert etag == store.head("a").etag
    assert hub.web.count("GET", path) == 2
    assert b"Signature" not in pickle.dumps(store)


def test_small_files_may_be_elsewhere_on_the_hub(hub: Hub) -> None:
    """A redirection on the same host is followed with the token, also one that is not encoded."""
    hub.token, hub.cached = "hf_secret", True
    hub.commit(_REPO, {"folder/a b": b"body"})
    store = _store(hub, token="hf_secret")  # noqa: S106 - of a hub in this process
    assert store.get("a b") == b"body"
    assert store.head("a b").etag == store.get_ranges("a b", [(1, 3)]).etag
    assert [*store.list()] == [store.head("a b")]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Said(503, b"", {"Retry-After": "4"}), StoreBusyError),
        (Said(200, b"<html>"), StoreError),
        (Said(206, b"ab", {"Content-Range": "bytes 3-4/9"}), StoreError),
        (Said(206, b"a", {"Content-Range": "bytes 0-1/9"}, length=2, hang_up=True), StoreError),
        (Said(302, b"", {"Location": "ftp://elsewhere"}), StoreError),
    ],
    ids=["busy", "page", "other-range", "cut", "nowhere"],
)
def test_what_is_wrong_on_the_second_host_is_an_error(
    hub: Hub, said: Said, error: type[StoreError]
) -> None:
    """Whatever comes instead of the bytes is never taken for them, and the next try succeeds."""
    hub.commit(_REPO, {"folder/a": _LARGE})
    store = _store(hub)
    for _ in range(2):  # the second time the place is known
        serve, hub.cdn.answer = hub.cdn.answer, in_turn(said)
        with pytest.raises(error):
            store.get_ranges("a", [(0, 2)])
        hub.cdn.answer = serve
        assert store.get_ranges("a", [(0, 2)]) == [_LARGE[:2]]


# --- errors ---------------------------------------------------------------------------------------


def test_a_missing_repository_is_told_from_a_missing_file(hub: Hub) -> None:
    """Both are `ObjectNotFoundError`, and say which it is."""
    with pytest.raises(ObjectNotFoundError, match="no such file at this revision"):
        _store(hub).get("a")
    with pytest.raises(ObjectNotFoundError, match="the repository does not exist, or is private"):
        _store(hub, "hf://datasets/owner/other/folder").get("a")
    with pytest.raises(ObjectNotFoundError, match="the repository does not exist"):
        list(_store(hub, "hf://datasets/owner/other/folder").list())
    with pytest.raises(ObjectNotFoundError, match="no such revision"):
        _store(hub, f"hf://{_REPO}@absent/folder").get("a")
    with pytest.raises(ObjectNotFoundError, match="the repository does not exist"):
        _store(hub, "hf://datasets/owner/other/folder").put("a", [b"x"])


def test_no_access_says_what_to_do(hub: Hub) -> None:
    """Private and gated repositories are `AccessDeniedError`; no token is in the message."""
    hub.commit(_REPO, {"folder/a": b"body"})
    hub.gated = True
    with pytest.raises(AccessDeniedError, match="gated: ask for access"):
        _store(hub).get("a")
    hub.gated, hub.token = False, "hf_right"
    for act in (
        lambda store: store.get("a"),
        lambda store: list(store.list()),
        lambda store: store.put("a", [b"x"]),
        lambda store: store.delete("a"),
    ):
        with pytest.raises(AccessDeniedError, match="set HF_TOKEN") as caught:
            act(_store(hub, token="hf_wrong"))  # noqa: S106 - of a hub in this process
        assert "hf_wrong" not in str(caught.value)


def test_a_busy_hub_is_told_and_retried(hub: Hub) -> None:
    """One 503 is `StoreBusyError` with its time; a retry goes on."""
    hub.commit(_REPO, {"folder/a": b"body"})
    hub.failing = [Said(503, b"", {"Retry-After": "7"})]
    with pytest.raises(StoreBusyError) as caught:
        _store(hub).get("a")
    assert caught.value.retry_after == 7
    hub.failing = [Said(429, b"", {"RateLimit": '"resolvers";r=0;t=55'})]
    with pytest.raises(StoreBusyError) as caught:
        _store(hub).get("a")
    assert caught.value.retry_after == 55
    hub.failing = [Said(503, b"")]
    assert RequestPolicy(2, first_pause=0.01).call(lambda: _store(hub).get("a")) == b"body"


def test_a_listing_that_is_none_is_an_error(hub: Hub) -> None:
    """A page of HTML with status 200 is no empty folder."""
    store = _store(hub)
    assert list(store.list()) == []
    hub.failing = [Said(200, b"<html>")]
    with pytest.raises(StoreError, match="no listing"):
        list(store.list())
