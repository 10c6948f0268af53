"""A server for tests of SFTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.sftp import SftpServer, make_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    """Return a server that takes a password, or the key in the file `user_key`."""
    public = make_key(tmp_path / "user_key")
    (tmp_path / "files").mkdir()
    with SftpServer(tmp_path / "files", authorized=public) as server:
        (tmp_path / "known_hosts").write_text(server.known_hosts)
        yield server
