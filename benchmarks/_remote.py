"""A store that all contenders can read from, and what they are asked to do with it.

The store is nginx serving files, which any S3 client takes for a bucket as long as it only reads.
It waits before each answer as long as the task says. A contender's module makes a `Source`;
`timed` turns it into what the worker runs, by the option `method`:

- `epoch`: a whole shuffled epoch by batches, from nothing in the cache to everything read
- `first`: from nothing to the first batch
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from _reading import BATCH_SIZES
from _spec import Outcome
from _truth import keys_of_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _spec import Task, Timed
    from _truth import Truth

__all__ = ["BUCKET", "KEYS", "Served", "Source", "timed"]

BUCKET = "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
"""The server believes everybody; clients want to sign."""

_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
{modules}
events {{ worker_connections 1024; }}
http {{
  access_log {folder}/requests combined; sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_requests 1000000; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location /{bucket}/ {{ alias {data}/; {wait} }}
  }}
}}
"""
_MODULES = (
    "load_module /usr/lib/nginx/modules/ndk_http_module.so;\n"
    "load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;"
)
_START_SECONDS = 10.0


class Traffic(NamedTuple):
    """What the server was asked for."""

    requests: int
    nbytes: int


class Served:
    """A folder behind a web server of its own, which ends with this object or process."""

    def __init__(self, data: Path, latency_ms: int) -> None:
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert nginx is not None, "these scenarios need nginx, with its Lua module for latency"
        self._folder = Path(tempfile.mkdtemp(prefix="bench-nginx-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        # Before the answer's first byte, as the way to a distant store does.
        wait = f"access_by_lua_block {{ ngx.sleep({latency_ms / 1000}) }}" if latency_ms else ""
        config = self._folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(
                folder=self._folder,
                port=self.port,
                bucket=BUCKET,
                data=data.resolve(),
                wait=wait,
                modules=_MODULES if latency_ms else "",
            ),
            encoding="utf-8",
        )
        process = subprocess.Popen([nginx, "-c", config], stdout=subprocess.DEVNULL)
        self._end = weakref.finalize(self, _stop, process, self._folder)
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                assert time.monotonic() < end, "nginx did not start"
                time.sleep(0.02)

    @property
    def endpoint(self) -> str:
        """What S3 clients are given."""
        return f"http://127.0.0.1:{self.port}"

    def traffic(self) -> Traffic:
        """Return what was asked for since the server started."""
        lines = (self._folder / "requests").read_text(encoding="utf-8").splitlines()
        sizes = [int(line.split('"')[2].split()[1]) for line in lines]
        return Traffic(len(sizes), sum(sizes))


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


class Source(Protocol):
    """A data set in the bucket, seen through one library."""

    @property
    def distributions(self) -> tuple[str, ...]:
        """Installed packages whose versions belong in the record."""

    def loader(self, local: Path, num_workers: int) -> Iterable[Mapping[str, Any]]:
        """Open the data set with its cache in `local`; return what gives batches of columns."""


def timed(task: Task, method: str, source: Source, truth: Truth, served: Served) -> Timed:
    """Return what times `method` of `source`, and compares what it read with `truth`."""
    return {"epoch": _Epoch, "first": _First}[method](task, source, truth, served)


class _Cold:
    def __init__(self, task: Task, source: Source, truth: Truth, served: Served) -> None:
        self.distributions = source.distributions
        self.payload_bytes = truth.payload_bytes
        self._task = task
        self._source = source
        self._truth = truth
        self._served = served

    def _outcome(self, num_samples: int, seconds: float, before: Traffic) -> Outcome:
        after = self._served.traffic()
        requests, nbytes = after.requests - before.requests, after.nbytes - before.nbytes
        return Outcome(num_samples, seconds, requests, nbytes)


class _Epoch(_Cold):
    """Reads everything once."""

    def run(self, out: Path) -> Outcome:
        before = self._served.traffic()
        out.mkdir(exist_ok=True)
        start = time.perf_counter()
        num_read = 0
        for batch in self._source.loader(out, self._task.num_workers):
            num_read += len(next(iter(batch.values())))
        seconds = time.perf_counter() - start
        gc.collect()
        if num_read != self._task.num_samples:
            msg = f"an epoch gave {num_read} samples where {self._task.num_samples} lie"
            raise ValueError(msg)
        return self._outcome(num_read, seconds, before)

    def count(self, out: Path) -> None:
        """Read once more, from the cache that was filled, and compare."""
        batches = self._source.loader(out, self._task.num_workers)
        keys = np.concatenate([keys_of_batch(self._task.work, batch) for batch in batches])
        if not np.array_equal(np.sort(keys), np.sort(self._truth.keys)):
            msg = f"{len(keys)} samples came, and they are not those that were written"
            raise ValueError(msg)


class _First(_Cold):
    """Waits for the first batch."""

    _batch: Mapping[str, Any]

    def run(self, out: Path) -> Outcome:
        before = self._served.traffic()
        out.mkdir(exist_ok=True)
        start = time.perf_counter()
        loader = self._source.loader(out, self._task.num_workers)
        iterator = iter(loader)
        self._batch = next(iterator)
        seconds = time.perf_counter() - start
        outcome = self._outcome(self._task.num_samples, seconds, before)
        del loader, iterator
        gc.collect()  # so that workers end, and count among the processor's seconds
        return outcome

    def count(self, out: Path) -> None:
        """Look at the batch that came: whole, of this data, nothing twice."""
        del out
        keys = keys_of_batch(self._task.work, self._batch)
        wanted = min(BATCH_SIZES[self._task.work], self._task.num_samples)
        if len(set(keys.tolist())) != wanted or not np.isin(keys, self._truth.keys).all():
            msg = f"the first batch has not {wanted} different samples of the data"
            raise ValueError(msg)
