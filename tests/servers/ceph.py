"""Ceph's gateway: a real store that speaks S3, with one monitor and one disk that is memory."""

from __future__ import annotations

import base64
import os
import shutil
import struct
import subprocess
import time
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tests.servers.processes import answers, needs, serving
from tests.servers.s3 import KEYS, S3Server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["ceph"]

_PROGRAMS: Final = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_START_SECONDS: Final = 240.0
_ASK_SECONDS: Final = 60
_CONF: Final = """\
[global]
fsid = {fsid}
mon_host = [v1:127.0.0.1:{port}]
ms_bind_msgr2 = false
keyring = {folder}/keyring
run_dir = {folder}
admin_socket =
log_file =
mon_cluster_log_file =
mon_data = {folder}/mon
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
"""
_ROLES: Final = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
    "client.gateway": {"mon": "allow rwx", "osd": "allow rwx"},
}


@contextmanager
def ceph(folder: Path) -> Generator[S3Server]:
    """Run the gateway and what it stands on; all is below `folder`, the objects are in memory.

    It verifies signatures and checksums in MD5, and knows conditions.
    """
    there = all(map(shutil.which, _PROGRAMS))
    needs("Ceph", there, "run tests/servers/install.sh ceph as root")
    cluster = _Cluster(folder)
    with ExitStack() as stack:
        stack.enter_context(serving(cluster.monitor, ready=cluster.is_there, within=_START_SECONDS))
        disk = cluster.disk()
        stack.enter_context(serving(lambda _: disk, ready=cluster.has_disk, within=_START_SECONDS))
        gateway = stack.enter_context(
            serving(cluster.gateway, ready=answers(), within=_START_SECONDS)
        )
        cluster.add_user()
        yield S3Server(gateway.url)


class _Cluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id = str(uuid.uuid4())
        self._conf = folder / "ceph.conf"

    def monitor(self, port: int) -> list[str]:
        """Lay out a new cluster whose monitor listens there, and return how it is started."""
        shutil.rmtree(self._folder / "mon", ignore_errors=True)
        (self._folder / "mon").mkdir()
        conf = _CONF.format(fsid=self._id, port=port, folder=self._folder)
        self._conf.write_text(conf)
        (self._folder / "keyring").write_text("".join(map(_key, _ROLES)))
        plan = str(self._folder / "monmap")
        where = f"[v1:127.0.0.1:{port}]"
        self._run("monmaptool", "--create", "--clobber", "--fsid", self._id, "--addv", "a", where,
                  plan)  # fmt: skip
        command = ["ceph-mon", "-c", str(self._conf), "-i", "a"]
        self._run(*command, "--mkfs", "--monmap", plan, "--keyring", f"{self._folder}/keyring")
        return [*command, "-f"]

    def is_there(self, _: int) -> bool:
        """Tell whether the monitor answers."""
        return bool(self._ask("mon", "stat"))

    def disk(self) -> list[str]:
        """Make a disk and return how it is started."""
        name = str(uuid.uuid4())
        (self._folder / "osd").mkdir()
        self._ask("osd", "new", name)
        command = ["ceph-osd", "-c", str(self._conf), "-i", "0"]
        self._run(*command, "--mkfs", "--osd-uuid", name)
        return [*command, "-f"]

    def has_disk(self, _: int) -> bool:
        """Tell whether the disk takes part."""
        return "1 up" in self._ask("osd", "stat")

    def gateway(self, port: int) -> list[str]:
        """Return how the gateway is started."""
        listen = f"beast endpoint=127.0.0.1:{port}"
        return ["radosgw", "-c", str(self._conf), "-n", "client.gateway", "-f",
                "--rgw-frontends", listen]  # fmt: skip

    def add_user(self) -> None:
        """Let `KEYS` be somebody."""
        self._run("radosgw-admin", "-c", str(self._conf), "-n", "client.gateway", "user", "create",
                  "--uid=tests", "--display-name=tests",
                  f"--access-key={KEYS['access_key_id']}",
                  f"--secret={KEYS['secret_access_key']}")  # fmt: skip

    def _ask(self, *what: str) -> str:
        return self._run("ceph", "-c", str(self._conf), "--connect-timeout", "20", *what)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
        if done.returncode:
            msg = f"{command} failed: {done.stderr[-1000:]}"
            raise OSError(msg)
        return done.stdout + done.stderr


def _key(role: str) -> str:
    """Return a role's part of the keyring, with a secret of its own."""
    secret = os.urandom(16)
    packed = struct.pack("<hiih", 1, int(time.time()), 0, len(secret)) + secret
    caps = "".join(f'\tcaps {where} = "{what}"\n' for where, what in _ROLES[role].items())
    return f"[{role}]\n\tkey = {base64.b64encode(packed).decode()}\n{caps}"
