"""OpenStack Swift with its S3 dialect: four servers, one device, one user."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tests.servers.processes import answers, needs, serving
from tests.servers.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["swift"]

_SECRET: Final = "testing-secret"  # noqa: S105 - opens nothing but a test's server
_KEYS: Final = {"access_key_id": "testing:testing", "secret_access_key": _SECRET}
_LAYERS: Final = ("account", "container", "object")
_PROGRAMS: Final = ("memcached", "swift-ring-builder", "swift-proxy-server", "swift-object-server")
_PYTHON: Final = "/usr/bin/python3"
_START_SECONDS: Final = 240.0
_RUN: Final = """\
import sys
from swift.common import utils
utils.SWIFT_CONF_FILE = sys.argv[1]  # otherwise it is the machine's own
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[2], sys.argv[3]))
"""
_ALL: Final = """\
[swift-hash]
swift_hash_path_suffix = tests
[storage-policy:0]
name = one
default = yes
"""
_SERVER: Final = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
"""
_LAYER: Final = """\
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY: Final = """\
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats bulk s3api tempauth slo dlo
  proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_testing_testing = {secret} .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memory}
"""
_PLAIN: Final = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "slo")


@contextmanager
def swift(folder: Path) -> Generator[S3Server]:
    """Run Swift with all it needs below `folder`.

    It verifies signatures and checksums in MD5; of conditions on writing it knows none.
    """
    there = all(map(shutil.which, _PROGRAMS))
    needs("Swift", there, "run tests/servers/install.sh swift as root")
    user = getpass.getuser()
    (folder / "swift.conf").write_text(_ALL)
    (folder / "run.py").write_text(_RUN)
    (folder / "devices" / "one").mkdir(parents=True)

    def command(name: str, port: int, rest: str) -> list[str]:
        conf = folder / f"{name}.conf"
        conf.write_text(_SERVER.format(port=port, user=user, folder=folder) + rest)
        return [_PYTHON, str(folder / "run.py"), str(folder / "swift.conf"), str(conf),
                f"{name}-server"]  # fmt: skip

    with ExitStack() as stack:
        memory = stack.enter_context(serving(lambda port: _memory(port, user), within=20))
        # The proxy takes a server for broken that is not there when it is asked first.
        for name in _LAYERS:

            def layer(port: int, name: str = name) -> list[str]:
                _ring(folder, name, port)
                return command(name, port, _LAYER.format(name=name))

            stack.enter_context(serving(layer, within=_START_SECONDS))
        filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in (*_PLAIN, "dlo"))
        rest = _PROXY.format(secret=_SECRET, memory=memory.port) + filters
        proxy = stack.enter_context(
            serving(
                lambda port: command("proxy", port, rest),
                ready=answers("/healthcheck"),
                within=_START_SECONDS,
            )
        )
        yield S3Server(proxy.url, _KEYS)


def _memory(port: int, user: str) -> list[str]:
    return ["memcached", "-u", user, "-l", "127.0.0.1", "-p", str(port), "-m", "32"]


def _ring(folder: Path, name: str, port: int) -> None:
    """Say where all of a kind lies: on the one device of the server at this port."""
    builder = folder / f"{name}.builder"
    builder.unlink(missing_ok=True)
    add = ["add", "--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--port", str(port),
           "--device", "one", "--weight", "1"]  # fmt: skip
    for step in (["create", "1", "1", "1"], add, ["rebalance"]):
        done = subprocess.run(
            [shutil.which("swift-ring-builder") or "", str(builder), *step],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode > 1:  # 1 is a warning
            msg = f"swift-ring-builder {step} failed: {done.stdout[-500:]}{done.stderr[-500:]}"
            raise OSError(msg)
