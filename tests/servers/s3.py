"""Stores that speak S3: moto in this process, LocalStack as a process of its own.

`ceph` and `swift` have two more, which verify signatures and are no emulators.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from tests.servers.processes import answers, needs, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

__all__ = ["KEYS", "S3Server", "localstack", "moto", "replaced_objects_stay"]

KEYS: Final = {"access_key_id": "testing", "secret_access_key": "testing-secret"}
"""Storage options that these servers take; neither looks at signatures."""
_PYTHON: Final = Path(__file__).parents[2] / ".servers" / "localstack" / "bin" / "python"
_START_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server."""

    url: str
    keys: Mapping[str, str] = field(default_factory=KEYS.copy)
    """Storage options that say who we are."""

    @contextmanager
    def client(self) -> Generator[Any]:
        """Give boto3's client for it."""
        import boto3
        from botocore.config import Config

        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.keys["access_key_id"],
            aws_secret_access_key=self.keys["secret_access_key"],
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}),
        )
        try:
            yield client
        finally:
            client.close()

    def bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        with self.client() as client:
            client.create_bucket(Bucket=name)
        return name

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the storage options that lead there."""
        return {"endpoint_url": self.url, **self.keys, **more}


@contextmanager
def moto() -> Generator[S3Server]:
    """Run moto in threads of this process; it believes every signature and checksum."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    inner: Any = server._server
    inner.app = _one_condition_at_a_time(inner.app)
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


def _one_condition_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    """Let moto look whether an object exists, and make it, before it looks for another request.

    Between the two another thread can make the object, the more often the busier the machine is.
    """
    guard = threading.Lock()

    def answer(environ: dict[str, Any], start: Any) -> Any:
        with guard if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            return app(environ, start)

    return answer


@contextmanager
def replaced_objects_stay() -> Generator[None]:
    """Keep moto from closing an object that is replaced while another thread sends it.

    It answers that thread with status 500 otherwise, the more often the busier the machine is.
    """
    from moto.s3.models import FakeKey

    with patch.object(FakeKey, "dispose", lambda *_, **__: None):
        yield


@contextmanager
def localstack(folder: Path) -> Generator[S3Server]:
    """Run LocalStack, which verifies checksums and knows conditions; `folder` is its home."""
    needs("LocalStack", _PYTHON.exists(), "run tests/servers/install.sh")
    settings = {
        "SERVICES": "s3",
        "STRICT_SERVICE_LOADING": "1",
        "EAGER_SERVICE_LOADING": "1",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }

    def command(port: int) -> list[str]:
        listen = f"GATEWAY_LISTEN=127.0.0.1:{port}"
        return ["env", listen, str(_PYTHON), "-m", "localstack.runtime.main"]

    ready = answers("/_localstack/health")
    with serving(command, ready=ready, within=_START_SECONDS, env=settings, cwd=folder) as served:
        yield S3Server(served.url)
