"""Logging in to SFTP servers, and which of them are trusted."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from tests.servers.sftp import (
    PASSWORD,
    USER,
    SftpServer,
    make_key,
    options_for,
    store_at,
)

from streaming_core._store import RequestPolicy, open_store
from streaming_core.errors import (
    AccessDeniedError,
    SchemaError,
    StoreError,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_password_may_stand_in_the_url_and_is_shown_nowhere(server: SftpServer) -> None:
    """It logs in, and is in no URL, text, error or pickle."""
    hosts = {"known_hosts_file": options_for(server)["known_hosts_file"]}
    store = open_store(f"sftp://{USER}:correct%20horse@127.0.0.1:{server.port}/set", hosts)
    store.put("a", [b"body"])
    with pytest.raises(StoreError) as caught:
        store.get("absent")
    for shown in (store.url, repr(store), str(caught.value), str(pickle.dumps(store))):
        assert "horse" not in shown
    assert store.url == f"sftp://{USER}@127.0.0.1:{server.port}/set"
    copy = pickle.loads(pickle.dumps(store))
    with pytest.raises(AccessDeniedError, match="'password' is not in the pickle"):
        copy.get("a")


def test_a_wrong_password_is_refused_once_and_not_shown(server: SftpServer) -> None:
    """The error is final, names user and server, and has no secret."""
    store = store_at(server, password="battery staple")  # noqa: S106 - the wrong one
    with pytest.raises(AccessDeniedError, match="does not let the user 'tester' in") as caught:
        RequestPolicy(5, first_pause=60.0).call(lambda: store.get("a"))
    assert "staple" not in str(caught.value)
    assert server.logins == 1


def test_fresh_options_are_asked_for_when_a_login_is_refused(server: SftpServer) -> None:
    """A function is called again, and the request is made with what it returns then."""
    passwords = iter([PASSWORD, "another one"])
    hosts = options_for(server)["known_hosts_file"]
    store = open_store(
        f"sftp://{USER}@127.0.0.1:{server.port}/set",
        lambda: {"password": next(passwords), "known_hosts_file": hosts},
    )
    store.put("a", [b"body"])
    server.close()
    server.password = "another one"  # noqa: S105 - guards nothing
    server.open()
    assert RequestPolicy(3, first_pause=0.01).call(lambda: store.get("a")) == b"body"
    assert server.logins == 3


@pytest.mark.parametrize("passphrase", [None, "a phrase"])
def test_a_key_file_logs_in(server: SftpServer, tmp_path: Path, passphrase: str | None) -> None:
    """With or without a passphrase; the password is not needed then."""
    key = tmp_path / "another_key"
    server.authorize(make_key(key, passphrase))
    more = {} if passphrase is None else {"passphrase": passphrase}
    store = store_at(server, password=None, key_file=str(key), **more)
    assert store.put("a", [b"body"]).size == 4


def test_files_are_named_by_the_environment(
    server: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key and known hosts come from the variables where no option names them."""
    monkeypatch.setenv("COMPOSER_SFTP_KEY_FILE", str(tmp_path / "user_key"))
    monkeypatch.setenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE", str(tmp_path / "known_hosts"))
    store = open_store(f"sftp://{USER}@127.0.0.1:{server.port}/set")
    assert store.put("a", [b"body"]).size == 4


def test_files_that_do_not_serve_are_named(
    server: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which file, and what is wrong with it, without the passphrase."""
    monkeypatch.chdir(tmp_path)
    make_key(tmp_path / "locked", "the right one")
    make_key(tmp_path / "stranger")
    for more, reason in (
        ({"key_file": "absent"}, "key file 'absent' cannot be read: No such file"),
        ({"key_file": "locked"}, "cannot be used without a passphrase"),
        ({"key_file": "locked", "passphrase": "wrong one"}, "cannot be used with the passphrase"),
        ({"key_file": "known_hosts"}, "must be a private key"),
        ({"key_file": "stranger"}, r"does not let the user 'tester' in with the key in 'stranger'"),
        ({"known_hosts_file": "absent"}, "known hosts 'absent' cannot be read: No such file"),
    ):
        store = store_at(server, **{"password": None, **more})
        with pytest.raises(AccessDeniedError, match=reason) as caught:
            store.get("a")
        assert "wrong one" not in str(caught.value)


def test_an_unknown_server_is_refused_with_what_to_do(server: SftpServer, tmp_path: Path) -> None:
    """The message has the key's fingerprint and the command that makes it known."""
    empty = tmp_path / "empty"
    empty.touch()
    store = store_at(server, known_hosts_file=str(empty))
    scan = f"ssh-keyscan -p {server.port} 127.0.0.1 >> {empty}"
    with pytest.raises(AccessDeniedError, match="SHA256:") as caught:
        store.get("a")
    assert scan in str(caught.value)
    assert server.logins == 0


def test_a_server_with_another_key_is_refused(server: SftpServer, tmp_path: Path) -> None:
    """Before a login is tried, so that an impostor learns no password."""
    other = make_key(tmp_path / "other_host")
    hosts = tmp_path / "other_known_hosts"
    hosts.write_text(f"[127.0.0.1]:{server.port} {other}\n")
    with pytest.raises(AccessDeniedError, match="another machine may be answering"):
        store_at(server, known_hosts_file=str(hosts)).get("a")
    assert server.logins == 0


def test_anyone_is_trusted_only_on_demand(server: SftpServer, tmp_path: Path) -> None:
    """`host_key_check=False` needs no known hosts; anything but a truth value is an error."""
    absent = str(tmp_path / "absent")
    assert store_at(server, host_key_check=False, known_hosts_file=absent).put("a", []).size == 0
    with pytest.raises(SchemaError, match="host_key_check"):
        store_at(server, host_key_check="no").get("a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://host/", "sftp://host/"),
        ("sftp://host:22/a/", "sftp://host/a"),
        ("sftp://u%40x:p%2Fw@host:2022/a%20b/ä#1?", "sftp://u%40x@host:2022/a%20b/%C3%A4%231%3F"),
        ("sftp://[::1]:2022/a", "sftp://[::1]:2022/a"),
    ],
)
def test_a_url_leads_back(url: str, shown: str) -> None:
    """The store's own URL names the same place, without a password."""
    store = open_store(url)
    assert store.url == shown
    assert open_store(store.url) == store
    assert store.child("x").url == f"{shown.rstrip('/')}/x"


@pytest.mark.parametrize(
    "url", ["sftp://host", "sftp:///a", "sftp:/host/a", "sftp://u:hunter2@host:ssh/a"]
)
def test_what_is_no_place_is_refused(url: str) -> None:
    """Host and absolute path are needed; a password is not shown."""
    with pytest.raises(SchemaError, match="sftp://user@host:port/absolute/path") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
