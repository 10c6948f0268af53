"""The store contract over SFTP, against two independent servers."""

from __future__ import annotations

import itertools
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.core.store.contract import MarkedContract
from tests.servers.sftp import PASSWORD, USER, SftpServer, openssh, sshd_problem

from streaming_core._store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.sftp import OpenSsh

    from streaming_core._store import Store

_numbers = itertools.count()


@pytest.fixture(scope="module")
def in_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    """Return a server for all tests."""
    with SftpServer(tmp_path_factory.mktemp("asyncssh")) as server:
        yield server


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSsh]:
    """Return a server for all tests; where all have to run, it must be installed."""
    problem = sshd_problem()
    if problem is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(problem)
    with openssh(tmp_path_factory.mktemp("openssh")) as server:
        yield server


@pytest.mark.slow
class TestAsyncSsh(MarkedContract):
    """A server in Python."""

    num_overwrites = 20

    @pytest.fixture
    def store(self, in_python: SftpServer, tmp_path: Path) -> Store:
        """Return a store of a folder that is not there yet."""
        hosts = tmp_path / "known_hosts"
        hosts.write_text(in_python.known_hosts)
        return open_store(
            f"sftp://{USER}@127.0.0.1:{in_python.port}/sets/{next(_numbers)}",
            partial(dict, password=PASSWORD, known_hosts_file=str(hosts)),
        )


@pytest.mark.server
class TestOpenSsh(MarkedContract):
    """The server that most machines run."""

    num_overwrites = 20

    @pytest.fixture
    def store(self, in_c: OpenSsh) -> Store:
        """Return a store of a folder that is not there yet."""
        return open_store(f"{in_c.url}/{next(_numbers)}", in_c.options)
