"""SFTP servers: asyncssh in this process, and OpenSSH where it is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from streaming_core._store import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator

    import asyncssh

    from streaming_core._store import Store

__all__ = [
    "PASSWORD",
    "USER",
    "OpenSsh",
    "SftpServer",
    "make_key",
    "openssh",
    "options_for",
    "sshd_problem",
    "store_at",
    "temp_names",
]

USER: Final = "tester"
PASSWORD: Final = "correct horse"  # noqa: S105 - guards nothing
_SECONDS: Final = 60.0


def make_key(path: Path, passphrase: str | None = None, kind: str = "ssh-ed25519") -> str:
    """Write a new private key and return the public one, as `authorized_keys` has it."""
    import asyncssh

    key = asyncssh.generate_private_key(kind)
    path.touch(0o600)
    key.write_private_key(path, passphrase=passphrase, rounds=16, ignore_few_rounds=True)
    return key.export_public_key().decode().strip()


class SftpServer:
    """An SFTP server on a free port of this machine, while the `with` block runs.

    It takes `USER` with `PASSWORD`, or the public keys in `authorized`. `folder` is its root.
    """

    def __init__(
        self, folder: Path, *, authorized: str = "", host_key: str = "ssh-ed25519"
    ) -> None:
        import asyncssh

        self.folder = folder
        self.password = PASSWORD
        self.logins = 0
        """How many logins were begun."""
        self.connections: list[asyncssh.SSHServerConnection] = []
        """All so far."""
        self.files: list[Any] = []
        """All that were opened; what a broken connection left open is closed at the end."""
        self.lacks: set[str] = set()
        """What it refuses: `posix-rename`, `hardlink`, `fsetstat`."""
        self.most_read_bytes: int | None = None
        """How much it sends at once, if less than asked for."""
        self.hook: Callable[[str, int], Awaitable[None]] | None = None
        """Is called in the server's thread before each read and write, with its offset."""
        self.is_deaf = False
        """Whether it does not answer when asked for its root."""
        self.port = 0
        self._keys = [authorized] if authorized else []
        self._host_key = asyncssh.generate_private_key(host_key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sftp", daemon=True)
        self._acceptor: asyncssh.SSHAcceptor | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.hook = None
        self.close()
        self._do(self._settled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()
        for file in self.files:
            file.close()

    @property
    def known_hosts(self) -> str:
        """What a file of known hosts says of it."""
        key = self._host_key.export_public_key().decode().strip()
        return f"[127.0.0.1]:{self.port} {key}\n"

    def authorize(self, public: str) -> None:
        """Let another key in."""
        self._keys.append(public)

    def is_authorized(self, key: asyncssh.SSHKey) -> bool:
        """Tell whether a key was let in."""
        shown = key.export_public_key().decode().split()[:2]
        return any(public.split()[:2] == shown for public in self._keys)

    def open(self) -> None:
        """Take connections, at the same port as before."""
        self._do(self._opened())

    def close(self) -> None:
        """Refuse connections, and break those that are open."""
        self._do(self._closed())

    async def before(self, verb: str, offset: int) -> None:
        """Wait for the test's hook."""
        if self.hook is not None:
            await self.hook(verb, offset)

    def _do(self, act: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(act, self._loop).result(_SECONDS)

    async def _opened(self) -> None:
        import asyncssh
        from tests.servers.sftp_sessions import files, login

        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: login(self),
            server_host_keys=[self._host_key],
            sftp_factory=lambda channel: files(channel, self),
            allow_scp=False,
            reuse_address=True,
        )
        self.port = self._acceptor.get_port()

    async def _closed(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None
        for connection in self.connections:
            connection.abort()

    async def _settled(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def options_for(server: SftpServer) -> dict[str, str]:
    """Return what logs in; the file of known hosts lies beside the server's folder."""
    return {"password": PASSWORD, "known_hosts_file": str(server.folder.parent / "known_hosts")}


def store_at(server: SftpServer, **more: Any) -> Store:
    """Return a store of the server's folder `set`, with other options than `options_for` gives."""
    url = f"sftp://{USER}@127.0.0.1:{server.port}/set"
    return open_store(url, {**options_for(server), **more})


# --- OpenSSH --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSsh:
    """A running sshd."""

    url: str
    """Its place for files, as a URL."""
    options: dict[str, str]
    """What logs in there."""
    folder: Path
    """Where the files lie."""


def sshd_problem() -> str | None:
    """Return why OpenSSH's server cannot run here, or None."""
    if shutil.which("sshd", path=_SBIN) is None:
        return "OpenSSH's server is not installed (apt-get install openssh-server)"
    return None


_SBIN: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_CONFIG: Final = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp internal-sftp
"""


@contextmanager
def openssh(home: Path) -> Generator[OpenSsh]:
    """Run OpenSSH's sshd on a free port, for the user of this process."""
    import getpass

    folder = home / "files"
    folder.mkdir()
    public = make_key(home / "user_key")
    (home / "authorized_keys").write_text(public + "\n")
    host = make_key(home / "host_key")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (home / "config").write_text(_CONFIG.format(home=home, port=port))
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}\n")
    sshd = shutil.which("sshd", path=_SBIN)
    assert sshd is not None
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(home / "config")], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        _wait_for(port, process, home / "log")
        yield OpenSsh(
            f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder}",
            {"key_file": str(home / "user_key"), "known_hosts_file": str(home / "known_hosts")},
            folder,
        )
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10.0):
            return
        time.sleep(0.02)
    raise RuntimeError(f"sshd does not answer: {log.read_text()[-2000:]}")


def temp_names(folder: Path) -> Iterator[str]:
    """Yield the names of files in the making below a folder."""
    return (path.name for path in folder.rglob(".*.tmp"))
