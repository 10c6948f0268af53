"""A server that gives wrong bytes: they are found out, fetched again, reported, and never kept."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.remote.serving import dataset, read, write
from tests.servers.faults import (
    Cut,
    Empty,
    Etag,
    Fault,
    Flip,
    Html,
    OtherBytes,
    Page,
    Reset,
    Status,
    WrongRange,
)
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

from streaming_core._store import Pieces, open_store, with_timeout
from streaming_core.errors import (
    ChecksumError,
    ShardCorruptError,
    ShardFetchError,
    ShardSizeError,
    StoreError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_SHARD = "/shard.00001.mds"
_ALL = list(range(40))


@pytest.fixture(scope="module", params=["sums", "plain"])
def remote(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return a data set of some shards, with hashes beside the index or without any."""
    folder = tmp_path_factory.mktemp("remote")
    write(folder, 40)
    if request.param == "plain":
        (folder / "checksums.xxh128").unlink()
    return folder


@pytest.fixture
def proxy(remote: Path) -> Generator[Proxy]:
    """Serve it through a proxy."""
    with WebServer(remote) as server, Proxy(server.url) as found:
        yield found


def _has_sums(folder: Path) -> bool:
    return (folder / "checksums.xxh128").exists()


_BROKEN: list[Fault] = [Html(), Empty(), Page(b"x" * 100_000), Cut(50), Reset(50), OtherBytes()]


@pytest.mark.parametrize("fault", [*_BROKEN, Flip(-20)], ids=lambda fault: type(fault).__name__)
def test_one_wrong_answer_is_got_over(
    proxy: Proxy, remote: Path, tmp_path: Path, fault: Fault
) -> None:
    """It is fetched once more, and the samples are right."""
    if isinstance(fault, Flip) and not _has_sums(remote):
        pytest.skip("nothing is known of these bytes but their number")
    rule = proxy.hurt(fault, path=f"*{_SHARD}", first=1)
    assert read(proxy.url, tmp_path) == _ALL
    assert rule.num_done == 1
    assert proxy.count(part=_SHARD) == 2
    bad = list((tmp_path / ".streaming/parts").glob("*.bad"))
    is_whole = isinstance(fault, (Page, OtherBytes, Flip))
    assert len(bad) == int(is_whole)


@pytest.mark.parametrize("fault", _BROKEN, ids=lambda fault: type(fault).__name__)
def test_wrong_answers_without_end_are_an_error_and_then_over(
    proxy: Proxy, tmp_path: Path, fault: Fault
) -> None:
    """The error has shard, URL, attempts and cause; the next iteration has all the samples."""
    proxy.hurt(fault, path=f"*{_SHARD}")
    found = dataset(proxy.url, tmp_path, download_retry=1, predownload=0)
    samples = iter(found)
    with pytest.raises(ShardFetchError, match=r"shard\.00001\.mds") as caught:
        list(samples)
    error = caught.value
    assert (error.shard, error.basename, error.url) == (1, _SHARD[1:], proxy.url)
    assert 2 <= error.attempts <= 4
    assert isinstance(error.__cause__, (ShardCorruptError, StoreError))
    assert not (tmp_path / _SHARD[1:]).exists() or isinstance(fault, OtherBytes)
    proxy.heal()
    found.set_epoch(1)
    assert sorted(sample["id"] for sample in found) == _ALL


@pytest.mark.parametrize(("fault", "kind"), [(Html(), ShardSizeError), (Flip(-20), ChecksumError)])
def test_the_cause_says_what_was_wrong(
    remote: Path, proxy: Proxy, tmp_path: Path, fault: Fault, kind: type[Exception]
) -> None:
    """Another number of bytes, or other bytes."""
    if isinstance(fault, Flip) and not _has_sums(remote):
        pytest.skip("nothing is known of these bytes but their number")
    proxy.hurt(fault, path=f"*{_SHARD}")
    with pytest.raises(ShardFetchError) as caught:
        read(proxy.url, tmp_path)
    assert isinstance(caught.value.__cause__, kind)


def test_answers_of_no_are_taken_at_once(proxy: Proxy, tmp_path: Path) -> None:
    """A shard that is missing or forbidden is asked for once."""
    for status in (404, 403):
        proxy.forget()
        rule = proxy.hurt(Status(status), path=f"*{_SHARD}")
        with pytest.raises(ShardFetchError):
            read(proxy.url, tmp_path, download_retry=5)
        assert rule.num_done == 1
        proxy.heal()


@pytest.mark.slow
def test_passing_errors_of_the_server_are_survived(proxy: Proxy, tmp_path: Path) -> None:
    """A tenth of all answers is an error of some kind: few requests are in vain, all is right."""
    for seed, code in enumerate((500, 502, 503, 429, 504)):
        proxy.hurt(Status(code), chance=0.02, seed=seed + 1)
    shards = 0
    for turn in range(6):
        local = tmp_path / str(turn)
        assert read(proxy.url, local, download_retry=4) == _ALL
        shards += len(list(local.glob("*.mds")))
    assert proxy.num_requests <= 2 * (shards + 2 * 6)


# --- one version ----------------------------------------------------------------------------------


class _Replacing:
    """Breaks a stream half-way, and has another version of the object when it is asked again."""

    def __init__(self, one: bytes, other: bytes, *, tell: bool = True) -> None:
        self._bodies = [one, other]
        self._tell = tell
        self.ranges: list[str] = []

    def __call__(self, asked: Asked) -> Said | None:
        if asked.method != "GET" or not asked.path.endswith(".mds"):
            return None
        number = min(len(self.ranges), 1)
        body = self._bodies[number]
        wanted = asked.headers.get("range", "")
        self.ranges.append(wanted)
        start = int(wanted[6:].rstrip("-")) if wanted else 0
        headers = {"ETag": f'"{number if self._bodies[0] != self._bodies[1] else 0}"'}
        if not self._tell:
            headers = {}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        rest = body[start:]
        sent = rest if len(self.ranges) > 1 else rest[: 3 << 20]
        return Said(206 if wanted else 200, sent, headers, len(rest), hang_up=True)


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, bytes]:
    """Return a data set without hashes, its only shard, and another of the same size."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for number, folder in enumerate(folders):
        write(folder, 5 + number, size=(1 << 20) - number, shard=1 << 24)
        (folder / "checksums.xxh128").unlink()
    bodies = [(folder / "shard.00000.mds").read_bytes() for folder in folders]
    return folders[0], bodies[0], bodies[1][: len(bodies[0])]


def test_a_stream_that_breaks_goes_on_with_the_same_version(
    two_versions: tuple[Path, bytes, bytes], tmp_path: Path
) -> None:
    """Without any hash the ETag says that what comes belongs to what came."""
    folder, body, _ = two_versions
    answer = _Replacing(body, body)
    with WebServer(folder, answer=answer) as server:
        assert read(server.url, tmp_path) == list(range(5))
    assert (tmp_path / "shard.00000.mds").read_bytes() == body
    assert len(answer.ranges) == 2
    assert answer.ranges[1].startswith("bytes=")


def test_without_a_version_and_a_hash_it_begins_anew(
    two_versions: tuple[Path, bytes, bytes], tmp_path: Path
) -> None:
    """Nothing would tell a mixture."""
    folder, body, _ = two_versions
    answer = _Replacing(body, body, tell=False)
    with WebServer(folder, answer=answer) as server:
        assert read(server.url, tmp_path) == list(range(5))
    assert answer.ranges == ["", ""]


@pytest.mark.slow
def test_two_versions_are_never_mixed(
    two_versions: tuple[Path, bytes, bytes], tmp_path: Path
) -> None:
    """What was replaced while it was read is read anew, from its beginning."""
    folder, body, other = two_versions
    assert body != other
    answer = _Replacing(other, body)
    with WebServer(folder, answer=answer) as server:
        assert read(server.url, tmp_path) == list(range(5))
    assert (tmp_path / "shard.00000.mds").read_bytes() == body
    assert len(answer.ranges) == 3
    assert answer.ranges[2] == ""


@pytest.mark.parametrize("fault", [WrongRange(), Etag(), Html()], ids=lambda f: type(f).__name__)
def test_a_continuation_that_lies_mixes_nothing(
    two_versions: tuple[Path, bytes, bytes], tmp_path: Path, fault: Fault
) -> None:
    """A wrong range, another version, a page: the shard is right in the end."""
    folder, body, _ = two_versions
    with WebServer(folder) as server, Proxy(server.url) as proxy:
        proxy.hurt(Cut(3 << 20), path="*.mds", methods=["GET"], first=1)
        proxy.hurt(fault, path="*.mds", methods=["GET"], skip=1, first=1)
        assert read(proxy.url, tmp_path) == list(range(5))
    assert (tmp_path / "shard.00000.mds").read_bytes() == body


def test_a_stream_tells_its_version(remote: Path) -> None:
    """As `head` does, from the first piece on; also with another timeout."""
    with WebServer(remote) as server:
        store: Any = open_store(server.url)
        for each in (store, with_timeout(store, 3.0)):
            with closing(each.stream(_SHARD[1:])) as pieces:
                assert isinstance(pieces, Pieces)
                assert pieces.etag == ""
                first = bytes(next(pieces))
                assert first == (remote / _SHARD[1:]).read_bytes()
                assert pieces.etag == store.head(_SHARD[1:]).etag != ""
            assert each == store


# --- how often ------------------------------------------------------------------------------------


def _wrong(remote: Path, name: str, times: int, *, same: bool) -> tuple[WebServer, list[str]]:
    """Return a server that first gives a file `times` with another bit flipped, or the same one."""
    body = (remote / name).read_bytes()
    asked_for: list[str] = []

    def answer(asked: Asked) -> Said | None:
        if asked.path != f"/{name}":
            return None
        asked_for.append(asked.path)
        if len(asked_for) > times:
            return None
        at = -1 if same else -len(asked_for)
        wrong = bytearray(body)
        wrong[at] ^= 1
        return Said(200, bytes(wrong))

    return WebServer(remote, answer=answer), asked_for


@pytest.fixture
def summed(tmp_path: Path) -> Path:
    """Return a data set with hashes beside the index."""
    folder = tmp_path / "summed"
    write(folder, 40)
    return folder


@pytest.mark.parametrize("name", [_SHARD[1:], "index.json"])
def test_wrong_answers_that_differ_are_tried_again_like_failed_requests(
    summed: Path, tmp_path: Path, name: str
) -> None:
    """The line is at fault, so as many tries are made as for any other failure."""
    server, asked_for = _wrong(summed, name, 2, same=False)
    with server:
        assert read(server.url, tmp_path / "local", download_retry=4) == _ALL
    assert len(asked_for) == 3


@pytest.mark.parametrize("name", [_SHARD[1:], "index.json"])
def test_the_same_wrong_answer_twice_is_the_data(summed: Path, tmp_path: Path, name: str) -> None:
    """Nothing is gained by asking for it again."""
    server, asked_for = _wrong(summed, name, 99, same=True)
    with server, pytest.raises(StreamingError, match=name.replace(".", r"\.")):
        read(server.url, tmp_path / "local", download_retry=9)
    assert len(asked_for) == 2


def test_wrong_answers_that_differ_without_end_are_an_error(summed: Path, tmp_path: Path) -> None:
    """After as many requests as were allowed, and the one that is always made again."""
    server, asked_for = _wrong(summed, _SHARD[1:], 99, same=False)
    with server, pytest.raises(ShardFetchError, match="wrong each time"):
        read(server.url, tmp_path / "local", download_retry=1)
    assert len(asked_for) == 3
