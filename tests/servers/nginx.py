"""A real nginx on the files of a folder, at several addresses that behave differently."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.servers.processes import free_port, needs, serving
from tests.servers.tls import make_certificates

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.servers.processes import Served

__all__ = ["SLOW_BYTES_PER_SECOND", "TOKEN", "Nginx", "nginx"]

TOKEN = "Bearer good"  # noqa: S105 - opens nothing but a test's server
"""What `Authorization` has to be below `/private`."""
SLOW_BYTES_PER_SECOND = 256 << 10
"""The speed of `/slow`, on each connection."""

_CONF = """\
daemon off;
{user}
worker_processes 1;
pid {work}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
  access_log {work}/access.log;
  default_type application/octet-stream;
  client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy;
  fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi;
  scgi_temp_path {work}/scgi;
  client_max_body_size 0;
  keepalive_requests 10000;
  map $http_authorization $is_known {{ default 0; "{token}" 1; }}
  map $request_uri $below {{ ~^/[^/]*/(?<rest>.*)$ $rest; }}
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location = /ready {{ return 200; }}
    location /data/ {{ alias {files}/; }}
    location /dav/ {{ alias {files}/; dav_methods PUT DELETE; create_full_put_path on; }}
    location /no-range/ {{ alias {files}/; max_ranges 0; }}
    location /slow/ {{ alias {files}/; limit_rate {rate}; }}
    location /moved/ {{ return 302 /data/$below; }}
    location /safe/ {{ return 302 https://localhost:{tls_port}/data/$below; }}
    location /private/ {{ if ($is_known = 0) {{ return 401; }} alias {files}/; }}
    location /seen/ {{ return 200 "$http_authorization|$http_x_team"; }}
    location /away/ {{ return 302 http://localhost:{port}/seen/$below; }}
    location /closed/ {{ return 403; }}
    location /busy/ {{ add_header Retry-After 7 always; return 503; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Nginx:
    """A server that runs.

    Its addresses, all on the same files:
    `/data` plain; `/dav` takes `PUT` and `DELETE`; `/no-range` sends whole files only; `/slow`;
    `/moved` redirects to `/data`, `/safe` to the same over TLS; `/private` wants `TOKEN`;
    `/closed` answers 403; `/busy` 503 with `Retry-After: 7`. `/seen/x` tells the headers
    `Authorization` and `X-Team` that came, `/away/x` redirects there under another host's name.
    """

    url: str
    tls_url: str
    ca_file: Path
    """Whom to trust at `tls_url`."""
    files: Path
    """The folder that is served."""
    work: Path

    def log(self) -> list[str]:
        """Return the lines of the access log so far."""
        return (self.work / "access.log").read_text().splitlines()


@contextmanager
def nginx(work: Path) -> Generator[Nginx]:
    """Run nginx with its files below the folder `work` until the block ends.

    Skips the running test where there is no nginx; with `CI` set it fails instead.
    """
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    needs("nginx", binary, "run tests/servers/install.sh nginx as root, or install nginx-light")
    files = work / "files"
    files.mkdir(parents=True)
    certificates = make_certificates(work)
    tls_port = 0

    def command(port: int) -> list[str]:
        nonlocal tls_port
        tls_port = free_port()
        text = _CONF.format(
            # A master that is root would run its workers as a user who may not enter `work`.
            user="user root;" if os.geteuid() == 0 else "",
            work=work,
            port=port,
            tls_port=tls_port,
            certificate=certificates.certificate,
            key=certificates.key,
            files=files,
            rate=SLOW_BYTES_PER_SECOND,
            token=TOKEN,
        )
        (work / "nginx.conf").write_text(text)
        return [str(binary), "-p", str(work), "-c", "nginx.conf", "-e", "stderr"]

    with serving(command) as served:
        yield _made(served, tls_port, work, files, certificates.ca_file)


def _made(served: Served, tls_port: int, work: Path, files: Path, ca_file: Path) -> Nginx:
    return Nginx(served.url, f"https://localhost:{tls_port}", ca_file, files, work)
