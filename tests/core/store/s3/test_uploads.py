"""Large objects: whole or not at all, nothing left behind, whatever happens on the way."""

from __future__ import annotations

import http.client
import logging
import multiprocessing
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.faults import Reset, Stall, Status
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

from streaming_core._store._s3 import S3Store
from streaming_core._store._s3._upload import cut
from streaming_core.errors import AlreadyExistsError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.s3 import S3Server

    from streaming_core._store import Buffer

MIB = 1 << 20
LARGE = bytes(range(251)) * (40 * MIB // 251)  # five parts; no part is like another


def _unfinished(server: S3Server, bucket: str) -> list[str]:
    with server.client() as client:
        found = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return sorted(upload["Key"] for upload in found)


def _of_part(number: int) -> Callable[[str, str], bool]:
    return lambda _, target: parse_qs(urlsplit(target).query).get("partNumber") == [str(number)]


@given(lengths=st.lists(st.integers(0, 30), max_size=8), step=st.integers(1, 17))
def test_parts_make_up_the_whole(lengths: list[int], step: int) -> None:
    """Each part has the size asked for, but the last, and together they are the bytes."""
    whole = bytes(range(sum(lengths)))
    views, at = [], 0
    for length in lengths:
        views.append(memoryview(whole)[at : at + length])
        at += length
    parts = [b"".join(part) for part in cut(views, step)]
    assert b"".join(parts) == whole
    assert all(len(part) == step for part in parts[:-1])
    assert not parts or 0 < len(parts[-1]) <= step


def test_sends_each_part_once_and_joins_them(moto_server: S3Server, bucket: str) -> None:
    """Forty MiB in odd pieces take five parts and two requests more, and read back equal."""
    with Proxy(moto_server.url) as proxy:
        store = S3Store.at(f"s3://{bucket}", moto_server.options(endpoint_url=proxy.url))
        pieces: list[Buffer] = [
            LARGE[:3],
            memoryview(LARGE)[3 : 9 * MIB],
            memoryview(LARGE)[9 * MIB :],
        ]
        info = store.put("folder/large", pieces)
        assert (proxy.count("PUT", "partNumber="), proxy.count()) == (5, 7)
        assert info == store.head("folder/large")
        assert store.get("folder/large") == LARGE
        assert store.get_ranges("folder/large", [(8 * MIB - 5, 8 * MIB + 5)]) == [
            LARGE[8 * MIB - 5 : 8 * MIB + 5]
        ]
    assert _unfinished(moto_server, bucket) == []


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        pytest.param(1, Status(500), marks=pytest.mark.slow),
        pytest.param(1, Reset(None), marks=pytest.mark.slow),
        (3, Status(400)),
        pytest.param(5, Status(500), marks=pytest.mark.slow),
        pytest.param(5, Reset(None), marks=pytest.mark.slow),
    ],
)
def test_a_part_that_fails_leaves_nothing(
    moto_server: S3Server, bucket: str, part: int, fault: Any
) -> None:
    """The put is an error, no object appears, and the store forgets what it had of it."""
    with Proxy(moto_server.url) as proxy:
        store = S3Store.at(f"s3://{bucket}", moto_server.options(endpoint_url=proxy.url))
        rule = proxy.hurt(fault, where=_of_part(part))
        with pytest.raises(StoreError, match="put 'large'"):
            store.put("large", [LARGE])
        assert rule.num_done
        assert _unfinished(moto_server, bucket) == []
        with pytest.raises(ObjectNotFoundError):
            store.get("large")
        proxy.heal()
        store.put("large", [LARGE])
        assert store.get("large") == LARGE


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_leaves_nothing(
    store: S3Store, moto_server: S3Server, bucket: str, error: type[BaseException]
) -> None:
    """Whatever is raised in the middle, the upload is aborted and the exception goes on."""
    gate, real, count = store._s3, store._s3.checksum, 0

    def checksum(body: Any) -> str:
        nonlocal count
        count += 1
        if count == 4:
            raise error
        return real(body)

    gate.checksum = checksum  # type: ignore[method-assign]
    with pytest.raises(error):
        store.put("large", [LARGE])
    assert _unfinished(moto_server, bucket) == []


@pytest.mark.slow
def test_an_abort_that_fails_is_told(
    moto_server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is that of the part; the log says what stays, and `abort_uploads` removes it."""
    with Proxy(moto_server.url) as proxy:
        store = S3Store.at(f"s3://{bucket}/x", moto_server.options(endpoint_url=proxy.url))
        proxy.hurt(Status(500), where=_of_part(2))
        proxy.hurt(Status(503), methods={"DELETE"})
        with (
            caplog.at_level(logging.WARNING, "streaming_core.store"),
            pytest.raises(StoreError, match="status 500"),
        ):
            store.put("large", [LARGE])
        assert "unfinished upload stays" in caplog.text
        proxy.heal()
        assert _unfinished(moto_server, bucket) == ["x/large"]
        assert (store.abort_uploads("other"), store.abort_uploads("lar")) == (0, 1)
    assert _unfinished(moto_server, bucket) == []


def test_success_with_an_error_inside_is_an_error(moto_server: S3Server, bucket: str) -> None:
    """Joining may fail after the status was sent; that is no success."""
    body = b"\n  <Error><Code>InternalError</Code><Message>Again, please.</Message></Error>"
    with Proxy(moto_server.url) as proxy:
        store = S3Store.at(f"s3://{bucket}", moto_server.options(endpoint_url=proxy.url))
        proxy.hurt(Status(200, body=body), where=lambda m, t: m == "POST" and "uploadId=" in t)
        with pytest.raises(StoreError, match="InternalError: Again"):
            store.put("large", [LARGE])
    assert _unfinished(moto_server, bucket) == []


@pytest.mark.slow
def test_a_lost_confirmation_is_no_half_object(
    moto_server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If only the answer to the last step is lost, the object is whole; it may be put again."""
    with Proxy(moto_server.url) as proxy:
        store = S3Store.at(f"s3://{bucket}", moto_server.options(endpoint_url=proxy.url))
        is_last = lambda method, target: method == "POST" and "uploadId=" in target  # noqa: E731
        proxy.hurt(Reset(0), where=is_last, first=1)
        with pytest.raises(StoreError, match="put 'large'"):
            store.put("large", [LARGE])
        assert store.get("large") == LARGE
        store.put("large", [LARGE[::-1]])
        assert store.get("large") == LARGE[::-1]
    assert "unfinished" not in caplog.text
    assert _unfinished(moto_server, bucket) == []


@pytest.mark.kill
def test_a_killed_writer_is_cleaned_up_after(moto_server: S3Server, bucket: str) -> None:
    """After SIGKILL in the middle no object is there, a rerun puts it, and its rest is removed."""
    with Proxy(moto_server.url) as proxy:
        options = moto_server.options(endpoint_url=proxy.url)
        store = S3Store.at(f"s3://{bucket}/data", options)
        arrived = threading.Event()

        def is_late(method: str, target: str) -> bool:
            late = method == "PUT" and not _of_part(1)(method, target)
            if late:
                arrived.set()
            return late

        proxy.hurt(Stall(None), where=is_late)
        child = multiprocessing.get_context("spawn").Process(
            target=store.put, args=("shard.00000.mds", [LARGE])
        )
        child.start()
        assert arrived.wait(60)
        child.kill()
        child.join(60)
        proxy.heal()
        assert _unfinished(moto_server, bucket) == ["data/shard.00000.mds"]
        assert list(store.list()) == []
        store.put("shard.00000.mds", [LARGE])
        assert store.get("shard.00000.mds") == LARGE
        assert store.abort_uploads("shard.") == 1
    assert _unfinished(moto_server, bucket) == []


def test_aborts_the_uploads_of_a_prefix(moto_server: S3Server, bucket: str) -> None:
    """All unfinished uploads of a prefix go, of several for one key too, and no others."""
    store = S3Store.at(f"s3://{bucket}/ä b", moto_server.options())
    with moto_server.client() as client:
        for key in ["ä b/x/1", "ä b/x/1", "ä b/x/2", "ä b/y", "z"]:
            client.create_multipart_upload(Bucket=bucket, Key=key)
    assert store.child("x").abort_uploads() == 3
    assert _unfinished(moto_server, bucket) == ["z", "ä b/y"]
    assert store.abort_uploads() == 1
    assert _unfinished(moto_server, bucket) == ["z"]


# --- what only a store that verifies can show -----------------------------------------------------


class _Flipping:
    """Hands requests on to a server, one bit of each body of some size turned."""

    def __init__(self, upstream: str) -> None:
        self.host = upstream.removeprefix("http://")
        self.num_flipped = 0

    def __call__(self, asked: Asked) -> Said:
        body = bytearray(asked.body)
        if asked.method == "PUT" and len(body) > 100:
            body[len(body) // 2] ^= 1
            self.num_flipped += 1
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(asked.method, asked.target, bytes(body), dict(asked.headers))
            answer = connection.getresponse()
            headers = {k: v for k, v in answer.getheaders() if k.lower() in {"etag", "x-amz-id-2"}}
            return Said(answer.status, answer.read(), headers)
        finally:
            connection.close()


@pytest.fixture
def place(local_server: S3Server) -> tuple[S3Server, str]:
    """Return LocalStack and an empty bucket in it."""
    return local_server, local_server.bucket()


@pytest.mark.server
@pytest.mark.xdist_group("localstack")
class TestVerifying:
    """On LocalStack."""

    @pytest.mark.parametrize("size", [1000, 20 * MIB])
    @pytest.mark.parametrize("anonymous", [True, False])
    def test_a_bit_that_flips_on_the_way_fails_the_put(
        self, place: tuple[S3Server, str], size: int, *, anonymous: bool
    ) -> None:
        """The store compares checksums, signed or not, and publishes nothing."""
        server, bucket = place
        flipping = _Flipping(server.url)
        with WebServer(answer=flipping) as between:
            options = {"endpoint_url": between.url, "anonymous": anonymous}
            store = S3Store.at(
                f"s3://{bucket}", server.options(**options) if not anonymous else options
            )
            with pytest.raises(StoreError, match="BadDigest"):
                store.put("a", [LARGE[:size]])
        assert flipping.num_flipped
        whole = S3Store.at(f"s3://{bucket}", server.options())
        assert list(whole.list()) == []
        assert _unfinished(server, bucket) == []

    def test_the_store_keeps_the_checksum(self, place: tuple[S3Server, str]) -> None:
        """What was verified can be asked for later."""
        server, bucket = place
        S3Store.at(f"s3://{bucket}", server.options()).put("a", [b"1234", b"56789"])
        with server.client() as client:
            head = client.head_object(Bucket=bucket, Key="a", ChecksumMode="ENABLED")
        assert head["ChecksumCRC32"] == "y/Q5Jg=="

    def test_large_objects_are_created_only_once(self, place: tuple[S3Server, str]) -> None:
        """The condition holds for an object in parts too, and the loser leaves nothing."""
        server, bucket = place
        store = S3Store.at(f"s3://{bucket}", server.options())
        store.put("a", [LARGE], if_absent=True)
        with pytest.raises(AlreadyExistsError, match="'a'"):
            store.put("a", [LARGE[::-1]], if_absent=True)
        assert store.get("a") == LARGE
        assert _unfinished(server, bucket) == []

    def test_makes_no_copy_of_the_body(self, place: tuple[S3Server, str]) -> None:
        """Putting forty MiB takes next to no memory beside them."""
        server, bucket = place
        store = S3Store.at(f"s3://{bucket}", server.options())
        store.put("warm", [b"up"])
        tracemalloc.start()
        try:
            store.put("large", [LARGE])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2 * MIB
        assert store.head("large").size == len(LARGE)


# --- others' objects ------------------------------------------------------------------------------

_KEYS = ["plain", "ä/数据 🙂", "100%/a+b=c&d#e?f'"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "moto",
        pytest.param("local", marks=[pytest.mark.server, pytest.mark.xdist_group("localstack")]),
    ],
)
def test_boto3_and_we_read_each_others_objects(kind: str, request: pytest.FixtureRequest) -> None:
    """Keys, bytes and etags are the same for both, of small and of large objects."""
    server: S3Server = request.getfixturevalue(f"{kind}_server")
    bucket = server.bucket()
    store = S3Store.at(f"s3://{bucket}/x", server.options())
    with server.client() as client:
        for key, body in [(key, key.encode()) for key in _KEYS] + [("large", LARGE)]:
            info = store.put(f"ours/{key}", [body])
            got = client.get_object(Bucket=bucket, Key=f"x/ours/{key}")
            assert (got["Body"].read(), got["ETag"]) == (body, info.etag)
            put = client.put_object(Bucket=bucket, Key=f"x/theirs/{key}", Body=body)
            assert store.get(f"theirs/{key}") == body
            assert store.head(f"theirs/{key}").etag == put["ETag"]
        client.put_object(Bucket=bucket, Key="x/folder/", Body=b"")
        listed = client.list_objects_v2(Bucket=bucket, Prefix="x/")["Contents"]
    keys = [entry["Key"].removeprefix("x/") for entry in listed]
    assert [info.key for info in store.list()] == [key for key in keys if key != "folder/"]


@pytest.mark.slow
def test_lists_more_than_two_pages(store: S3Store) -> None:
    """Listings of more than a thousand keys come whole and in order, also from a prefix on."""
    keys = sorted(f"{number % 7}/{number:05d} ä+" for number in range(2105))
    threads = [
        threading.Thread(
            target=lambda part: [store.put(k, [b""]) for k in part], args=(keys[i::4],)
        )
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [info.key for info in store.list()] == keys
    assert [info.key for info in store.list("3/")] == [key for key in keys if key[0] == "3"]
