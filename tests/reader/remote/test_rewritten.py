"""A data set written anew under its URL, and an index or sums that came wrong once."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.remote.serving import write
from tests.servers.faults import Empty, Flip, Html, Page, Status
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Server, moto
from tests.servers.web import WebServer

from streaming_core import MDSWriter, StreamingDataset
from streaming_core._index import FileInfo
from streaming_core._read import FileCheck
from streaming_core.errors import ChecksumError, StreamingError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_SUMS = "checksums.xxh128"
_COUNT = 200
_COLUMNS = {"id": "int", "version": "int"}


@pytest.fixture(scope="module")
def s3() -> Generator[S3Server]:
    """Run a store whose etags are hashes of the content."""
    with moto() as found:
        yield found


class _Set:
    """A data set in a bucket of its own."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._bucket = server.bucket()
        self.url = f"s3://{self._bucket}/set"

    def write(self, version: int, *, sums: bool = True, count: int = _COUNT, **more: Any) -> None:
        """Write samples of the same sizes, all of which have this version."""
        options = self._server.options(region="us-east-1")
        with MDSWriter(
            out=self.url,
            columns=_COLUMNS,
            storage_options=options,
            size_limit=700,
            exist_ok=True,
            checksums=sums,
            **more,
        ) as out:
            for i in range(count):
                out.write({"id": i, "version": version})

    def object(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with self._server.client() as client:
            found: bytes = client.get_object(Bucket=self._bucket, Key=f"set/{name}")["Body"].read()
            return found

    def open(self, local: Path, via: str = "", **settings: Any) -> StreamingDataset:
        """Open it, through a proxy if one is given."""
        options = self._server.options(region="us-east-1")
        if via:
            options["endpoint_url"] = via
        return StreamingDataset(
            remote=self.url, local=str(local), batch_size=1, storage_options=options, **settings
        )

    def versions(self, local: Path, stop: int = _COUNT, via: str = "") -> Counter[int]:
        """Read the first samples and count their versions."""
        found: Counter[int] = Counter()
        for at, sample in enumerate(self.open(local, via)):
            if at == stop:
                break
            found[int(sample["version"])] += 1
        return found


@pytest.fixture
def remote(s3: S3Server) -> _Set:
    """Return a data set that is not written yet."""
    return _Set(s3)


# --- written anew ---------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize(
    ("stop", "sums"),
    [
        pytest.param(_COUNT, True, id="full, sums"),
        pytest.param(_COUNT, False, id="full, no sums", marks=pytest.mark.essential),
        pytest.param(60, False, id="partly, no sums"),
    ],
)
def test_samples_of_the_same_sizes_are_not_mixed(
    remote: _Set, tmp_path: Path, stop: int, *, sums: bool
) -> None:
    """The index is the same to the byte and its etag too; what lies in the cache is dropped."""
    remote.write(1, sums=sums)
    index = remote.object("index.json")
    assert remote.versions(tmp_path, stop) == {1: stop}
    for version in (2, 3):
        remote.write(version, sums=sums)
        assert remote.object("index.json") == index
        assert remote.versions(tmp_path) == {version: _COUNT}


@pytest.mark.server
def test_sums_that_come_or_go_with_other_data_are_heeded(remote: _Set, tmp_path: Path) -> None:
    """A set with sums is replaced by one without, and that by one with them."""
    for version, sums in ((1, True), (2, False), (3, True)):
        remote.write(version, sums=sums)
        assert remote.versions(tmp_path) == {version: _COUNT}


@pytest.mark.server
def test_a_set_that_is_the_same_stays(remote: _Set, tmp_path: Path) -> None:
    """Writing the same again changes no etag and fetches nothing."""
    for sums in (True, False):
        local = tmp_path / str(sums)
        remote.write(1, sums=sums)
        assert remote.versions(local) == {1: _COUNT}
        before = {path: path.stat().st_ino for path in local.glob("*.mds")}
        assert before
        remote.write(1, sums=sums)
        assert remote.versions(local) == {1: _COUNT}
        assert {path: path.stat().st_ino for path in local.glob("*.mds")} == before


@pytest.mark.server
def test_more_shards_without_sums_leave_the_old_ones(remote: _Set, tmp_path: Path) -> None:
    """Growing is no rewriting, but growing by others of the same sizes is."""
    # As many samples as fill each shard, so that no old shard grows.
    remote.write(1, sums=False)
    names = re.findall(rb'"basename": ?"(shard[^"]*)"', remote.object("index.json"))
    per_shard = int(re.findall(rb'"samples": ?(\d+)', remote.object("index.json"))[0])
    few, many = 2 * per_shard, 4 * per_shard
    assert len(names) > 4
    remote.write(1, sums=False, count=few)
    assert remote.versions(tmp_path) == {1: few}
    before = {path.name: path.stat().st_ino for path in tmp_path.glob("*.mds")}
    remote.write(1, sums=False, count=many)
    assert remote.versions(tmp_path) == {1: many}
    assert {name: (tmp_path / name).stat().st_ino for name in before} == before
    remote.write(2, sums=False, count=5 * per_shard)
    assert remote.versions(tmp_path) == {2: min(5 * per_shard, _COUNT)}


@pytest.mark.server
def test_what_cannot_be_compared_is_left(remote: _Set, s3: S3Server, tmp_path: Path) -> None:
    """A store that does not say whether the sums or shards have changed costs no cached file."""
    for sums in (True, False):
        local = tmp_path / str(sums)
        remote.write(1, sums=sums)
        assert remote.versions(local) == {1: _COUNT}
        with Proxy(s3.url) as proxy:
            proxy.hurt(Status(503), path="*checksums*")
            proxy.hurt(Status(503), path="*shard*")
            assert remote.versions(local, via=proxy.url) == {1: _COUNT}
        assert remote.versions(local) == {1: _COUNT}


def test_a_hash_that_is_wrong_says_what_to_do() -> None:
    """The cached index and sums may be those of another version: opening again compares them."""
    check = FileCheck(FileInfo("shard.00000.mds", 1, {}), {"shard.00000.mds": "0" * 32})
    check.update(b"a")
    with pytest.raises(ChecksumError) as caught:
        check.finish("s3://bucket/set")
    for told in ("s3://bucket/set", _SUMS, "Open it again", "cache folder", "write the file again"):
        assert told in str(caught.value)


# --- an index that came wrong once ----------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("fault", [Empty(), Html(), Page(b'{"shards": [')], ids=repr)
def test_an_index_that_is_none_once_is_read_again(
    remote: _Set, s3: S3Server, tmp_path: Path, fault: Page
) -> None:
    """As shards are; what is wrong twice is an error, which another test shows."""
    remote.write(1)
    with Proxy(s3.url) as proxy:
        rule = proxy.hurt(fault, path="*index.json", first=1)
        assert remote.versions(tmp_path, via=proxy.url) == {1: _COUNT}
        assert rule.num_done == 1
        assert proxy.count("GET", "index.json") == 2


@pytest.mark.server
@pytest.mark.parametrize("key", [b'"bytes":', b'"samples":'])
def test_an_index_with_another_digit_is_not_believed(
    remote: _Set, s3: S3Server, tmp_path: Path, key: bytes
) -> None:
    """Where the etag is the hash of the content it proves what came."""
    remote.write(1)
    with Proxy(s3.url) as proxy:
        proxy.hurt(
            Flip(_digit_after(remote.object("index.json"), key)), path="*/index.json", first=1
        )
        for _ in range(2):
            assert remote.versions(tmp_path, via=proxy.url) == {1: _COUNT}
        assert proxy.count("GET", "index.json") == 2


@pytest.mark.parametrize("name", ["index.json", _SUMS])
def test_a_wrong_digit_does_not_stay(tmp_path: Path, name: str) -> None:
    """Where nothing proves what came, the next opening reads it once more."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, 60)
    at = 0 if name == _SUMS else _digit_after((remote / name).read_bytes(), b'"bytes":')
    with WebServer(remote) as server, Proxy(server.url) as proxy:
        proxy.hurt(Flip(at), path=f"*/{name}", first=1)

        def ids() -> list[int]:
            found = StreamingDataset(
                remote=proxy.url, local=str(local), batch_size=1, download_retry=0
            )
            return [int(sample["id"]) for sample in found]

        with pytest.raises(StreamingError, match=r"shard\.00000"):
            ids()
        assert ids() == list(range(60))
        assert ids() == list(range(60))


def _digit_after(document: bytes, key: bytes) -> int:
    found = re.search(re.escape(key) + rb" ?", document)
    assert found is not None
    return found.end()


# --- sums that came wrong -------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("first", [1, None], ids=["once", "always"])
@pytest.mark.parametrize("what", ["empty", "html", "few lines", "cut in a line"])
def test_sums_that_lack_files_are_read_again_and_told(
    remote: _Set,
    s3: S3Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    what: str,
    first: int | None,
) -> None:
    """Twice wrong is told, and what is there is checked; the next opening asks again."""
    remote.write(1)
    sums = remote.object(_SUMS)
    lines = b"".join(sums.splitlines(keepends=True)[:3])
    fault = {
        "empty": Empty(),
        "html": Html(),
        "few lines": Page(lines),
        "cut in a line": Page(lines + sums.splitlines()[3][:20]),
    }[what]
    with Proxy(s3.url) as proxy:
        proxy.hurt(fault, path=f"*{_SUMS}", first=first)
        if first is not None or "line" in what:
            proxy.hurt(Flip(100), path="*shard.00001*", first=1)
        assert remote.versions(tmp_path, via=proxy.url) == {1: _COUNT}
        assert proxy.count("GET", _SUMS) >= 2
        assert ("has no line for" in caplog.text) is (first is None)
        proxy.heal()
        assert remote.versions(tmp_path, via=proxy.url) == {1: _COUNT}
        assert (tmp_path / _SUMS).read_bytes() == sums


@pytest.mark.server
@pytest.mark.parametrize("fault", [Status(403), Empty(), Status(404)], ids=repr)
def test_files_that_came_without_sums_are_checked_once_these_are_known(
    remote: _Set, s3: S3Server, tmp_path: Path, fault: Any
) -> None:
    """A bit that was wrong on the way while nothing told does not stay."""
    remote.write(1)
    with Proxy(s3.url) as proxy:
        proxy.hurt(fault, path=f"*{_SUMS}")
        proxy.hurt(Flip(-1), path="*shard.00001*", first=1)
        assert remote.versions(tmp_path, via=proxy.url) != {1: _COUNT}
        proxy.heal()
        assert remote.versions(tmp_path, via=proxy.url) == {1: _COUNT}


@pytest.mark.server
def test_sums_that_do_not_come_cost_no_more_than_a_request(
    remote: _Set, s3: S3Server, tmp_path: Path
) -> None:
    """A store that is busy for the sums alone is waited for as long as for one request."""
    remote.write(1)
    with Proxy(s3.url) as proxy:
        proxy.hurt(Status(503), path=f"*{_SUMS}")
        began = time.monotonic()
        found = remote.open(tmp_path, proxy.url, download_timeout=10, download_retry=5)
        assert time.monotonic() - began < 5 * 10
        assert found.num_samples == _COUNT
