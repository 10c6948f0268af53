"""Caches that an earlier release filled, most of them killed while it did."""

from __future__ import annotations

import shutil
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.bucket import Bucket
from tests.compat.cases import Case, assert_told, cases
from tests.compat.jobs import opened
from tests.compat.rows import digest

from streaming_core import StreamingDataLoader, StreamingDataset
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ORDER = 20


def _is_remote(name: str) -> bool:
    return name != "moved"


@pytest.fixture
def placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Case, bool], tuple[dict[str, Any], Bucket, Path]]]:
    """Return a function that puts a cache in place and serves what it was filled from."""
    servers: list[Bucket] = []

    def place(case: Case, keep_times: bool) -> tuple[dict[str, Any], Bucket, Path]:
        bucket, local = tmp_path / "bucket", tmp_path / "user-cache"
        data = case.settings["data"]
        case.fixture.unpack(bucket / data, f"bucket/{data}")
        case.fixture.unpack(local, f"local/{case.name}", keep_times=keep_times)
        server = Bucket(bucket)
        server.__enter__()
        servers.append(server)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        given = dict(case.settings["dataset"])
        if not case.settings["home"]:
            local_given = {"local": str(local)}
            if "streams" in given:
                given["streams"] = [{**stream, **local_given} for stream in given["streams"]]
            else:
                given |= local_given
        return given, server, local

    yield place
    for server in servers:
        server.__exit__()


def _shards_there(case: Case) -> set[str]:
    """Return the names of the shard files that were complete in the cache."""
    return {
        name.rpartition("/")[2]
        for name in case.settings["files"]
        if "/parts/" not in name and name.rpartition("/")[2].startswith("shard.")
    }


@pytest.mark.parametrize("keep_times", [True, False], ids=["times", "no-times"])
@cases("caches", lambda name: _is_remote(name) and name != "orders")
def test_a_cache_is_read_on(
    case: Case,
    keep_times: bool,
    placed: Callable[[Case, bool], tuple[dict[str, Any], Bucket, Path]],
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    """All samples are right, the limit holds, and no complete shard is fetched without a word."""
    given, server, _ = placed(case, keep_times)
    dataset = opened(given)
    rows = [dataset[at] for at in range(dataset.size)]
    assert digest(rows) == case.fixture.manifest["rows"][case.settings["data"]]
    there = _shards_there(case)
    fetched = {key.rpartition("/")[2] for key in server.read_keys()}
    if "cache_limit" in given:
        _assert_within_limit(dataset, given["cache_limit"])
    else:
        # A compressed file that was not kept stands for the shard that was made of it.
        again = {name for name in fetched if name.removesuffix(".zstd") in there}
        record_property("reused", assert_told(again, [], caplog))


def _assert_within_limit(dataset: StreamingDataset, limit: int | str) -> None:
    most = limit if isinstance(limit, int) else int(limit.removesuffix("kb")) * 1024
    assert 0 < dataset.cache_usage <= most
    for _ in dataset:
        assert dataset.cache_usage <= most


@cases("caches", _is_remote)
def test_training_goes_on_from_cache_and_checkpoint(
    case: Case, placed: Callable[[Case, bool], tuple[dict[str, Any], Bucket, Path]]
) -> None:
    """The run that was killed continues exactly where its last checkpoint was taken."""
    given, _, _ = placed(case, True)
    size = given["batch_size"]
    loader = StreamingDataLoader(opened(given), batch_size=size, batch_format="dict")
    loader.load_state_dict(case.settings["state"])
    batches = iter(loader)
    if "streams" in given:
        batches = islice(batches, _ORDER)
    assert [number for batch in batches for number in batch["id"]] == case.settings["remaining"]


@cases("caches", lambda name: name == "moved")
def test_cache_and_folder_may_move(case: Case, tmp_path: Path) -> None:
    """A cache that remembers another path is used where the data is known to be the same."""
    bucket, local = tmp_path / "elsewhere", tmp_path / "local"
    case.fixture.unpack(bucket, "bucket/raw")
    case.fixture.unpack(local, "local/moved")
    shard = next(bucket.glob("shard.*"))
    shard.unlink()  # what is in the cache need not be there
    given = {**case.settings["dataset"], "remote": str(bucket), "local": str(local)}
    dataset = opened(given)
    rows = [dataset[at] for at in range(dataset.size)]
    assert digest(rows) == case.fixture.manifest["rows"]["raw"]


@cases("caches", lambda name: name == "moved")
def test_a_cache_of_other_data_is_refused(case: Case, tmp_path: Path) -> None:
    """The error names the folder, what it was filled from, and what to do."""
    bucket, local = tmp_path / "elsewhere", tmp_path / "local"
    case.fixture.unpack(bucket, "bucket/zstd")
    case.fixture.unpack(local, "local/moved")
    before = sorted(path.name for path in local.iterdir())
    given = {**case.settings["dataset"], "remote": str(bucket), "local": str(local)}
    with pytest.raises(SchemaError, match="another local folder") as caught:
        opened(given)
    assert str(local) in str(caught.value)
    assert str(bucket) in str(caught.value)
    assert sorted(path.name for path in local.iterdir()) == before


@cases("caches", lambda name: name == "killed")
def test_a_damaged_ledger_does_no_harm(
    case: Case, placed: Callable[[Case, bool], tuple[dict[str, Any], Bucket, Path]]
) -> None:
    """Without the small files that describe a cache, the shards are still read or fetched."""
    given, _, local = placed(case, True)
    shutil.rmtree(local / ".streaming")
    dataset = opened(given)
    rows = [dataset[at] for at in range(dataset.size)]
    assert digest(rows) == case.fixture.manifest["rows"]["raw"]
