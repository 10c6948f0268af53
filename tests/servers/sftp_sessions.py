"""What a client of the SFTP server of tests may do: log in, and use the files of a folder."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

import asyncssh
from tests.servers.sftp import USER

if TYPE_CHECKING:
    from tests.servers.sftp import SftpServer

__all__ = ["files", "login"]

_DEAF_SECONDS: Final = 60.0


def files(channel: Any, owner: SftpServer) -> asyncssh.SFTPServer:
    """Return what serves the files of a connection."""
    return _Files(channel, owner)


def login(owner: SftpServer) -> asyncssh.SSHServer:
    """Return what lets a client in."""
    return _Login(owner)


class _Files(asyncssh.SFTPServer):
    """Files below a folder, with a hook before each read and write, and what it may lack."""

    def __init__(self, channel: Any, owner: SftpServer) -> None:
        super().__init__(channel, chroot=os.fsencode(owner.folder))
        self._owner = owner

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> Any:
        file = super().open(path, pflags, attrs)
        self._owner.files.append(file)
        return file

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        await self._owner.before("read", offset)
        most = self._owner.most_read_bytes
        data = super().read(file_obj, offset, size if most is None else min(size, most))
        assert isinstance(data, bytes)
        return data

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        await self._owner.before("write", offset)
        count = super().write(file_obj, offset, data)
        assert isinstance(count, int)
        return count

    async def stat(self, path: bytes) -> Any:
        if self._owner.is_deaf and path == b"/":
            await asyncio.sleep(_DEAF_SECONDS)
        return super().stat(path)

    def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        self._refuse("posix-rename")
        super().posix_rename(oldpath, newpath)

    def link(self, oldpath: bytes, newpath: bytes) -> None:
        self._refuse("hardlink")
        super().link(oldpath, newpath)

    def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        self._refuse("fsetstat")
        result = super().fsetstat(file_obj, attrs)
        assert result is None

    def _refuse(self, what: str) -> None:
        if what in self._owner.lacks:
            raise asyncssh.SFTPFailure(f"no {what} here")


class _Login(asyncssh.SSHServer):
    """Lets one user in, by password or key."""

    def __init__(self, owner: SftpServer) -> None:
        self._owner = owner

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._owner.connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        del username
        self._owner.logins += 1
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == USER and self._owner.is_authorized(key)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, self._owner.password)
