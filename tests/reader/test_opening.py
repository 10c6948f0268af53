"""A folder that caches a remote stays true to it: moved, grown, rewritten, gone, another's."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core import MDSWriter
from streaming_core.errors import SchemaError
from streaming_reader._cache_home import user_cache
from streaming_reader._documents import Verdict, judge
from streaming_reader.dataset import StreamingDataset
from streaming_reader.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = {"id": "int64"}
_RECORD = ".streaming/source"


def _write(folder: Path, values: range, hashes: Any = None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with MDSWriter(out=str(folder), columns=_COLUMNS, size_limit=300, hashes=hashes) as out:
        for value in values:
            out.write({"id": np.int64(value)})


def _stream(settings: dict[str, Any]) -> Stream:
    return Stream(**settings)


def _read(remote: Path | str, local: Path) -> list[int]:
    dataset = StreamingDataset(remote=str(remote), local=str(local), batch_size=1)
    return [int(sample["id"]) for sample in dataset]


def test_another_remote_is_refused_and_the_same_data_elsewhere_are_not(tmp_path: Path) -> None:
    """A folder never serves one remote's samples for another's; a copy of the data is as good."""
    _write(tmp_path / "a", range(50))
    _write(tmp_path / "b", range(100, 150))
    local = tmp_path / "local"
    assert _read(tmp_path / "a", local) == list(range(50))
    with pytest.raises(SchemaError, match=r"/a, but the remote is now .*/b, .*another local"):
        _read(tmp_path / "b", local)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    assert _read(tmp_path / "c", local) == list(range(50))
    assert json.loads((local / _RECORD).read_text())["url"] == (tmp_path / "c").as_uri()
    with pytest.raises(SchemaError, match="not known to be the same"):
        _read(tmp_path / "none", local)


@pytest.mark.parametrize("hashes", [None, ["xxh64"]])
@pytest.mark.parametrize("sums", [True, False])
def test_a_remote_that_was_rewritten_is_read_anew(
    tmp_path: Path, hashes: list[str] | None, *, sums: bool
) -> None:
    """Files of the same names and sizes are not taken for the new ones."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    for values in (range(50), range(1000, 1050), range(2000, 2055)):
        _write(remote, values, hashes)
        if not sums:
            (remote / "checksums.xxh128").unlink(missing_ok=True)
        assert _read(remote, local) == list(values)


def test_data_that_have_grown_keep_what_is_there(tmp_path: Path) -> None:
    """More shards behind the old ones: the new index is used, and no old file is removed."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    _write(tmp_path / "all", range(90))
    names = sorted(path.name for path in (tmp_path / "all").glob("*.mds"))
    _write(remote, range(90))
    document = json.loads((remote / "index.json").read_text())
    few = {**document, "shards": document["shards"][:2]}
    (remote / "index.json").write_text(json.dumps(few))
    before = _read(remote, local)
    assert before == list(range(len(before)))
    inodes = {name: (local / name).stat().st_ino for name in names[:2]}
    (remote / "index.json").write_text(json.dumps(document))
    assert _read(remote, local) == list(range(90))
    assert {name: (local / name).stat().st_ino for name in names[:2]} == inodes


def test_without_the_remote_the_cache_goes_on(tmp_path: Path) -> None:
    """A filled folder needs no remote, with the note of where it is from or without."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    _write(remote, range(50))
    _read(remote, local)
    shutil.rmtree(remote)
    assert _read(remote, local) == list(range(50))
    (local / _RECORD).unlink()
    assert _read(remote, local) == list(range(50))
    assert (local / _RECORD).exists()


def test_a_folder_of_unknown_origin_is_taken_only_for_the_same_data(tmp_path: Path) -> None:
    """A cache that something else has filled is used if it fits, and never emptied."""
    _write(tmp_path / "a", range(50))
    _write(tmp_path / "b", range(100, 150))
    local = tmp_path / "local"
    shutil.copytree(tmp_path / "a", local)
    before = sorted(path.name for path in local.glob("*.mds"))
    with pytest.raises(SchemaError, match="unknown remote"):
        _read(tmp_path / "b", local)
    assert sorted(path.name for path in local.glob("*.mds")) == before
    assert _read(tmp_path / "a", local) == list(range(50))
    assert (local / _RECORD).exists()


def test_a_folder_is_not_the_cache_of_itself(tmp_path: Path) -> None:
    """A remote that is the folder, however it is written, leaves no note in it."""
    _write(tmp_path / "a", range(50))
    assert _read((tmp_path / "a").as_uri(), tmp_path / "a") == list(range(50))
    assert not (tmp_path / "a" / ".streaming").exists()


@given(st.sampled_from([None, "a", "b"]), st.sampled_from([None, True, False]), st.booleans())
def test_the_verdict(noted: str | None, same: bool | None, grown: bool) -> None:
    """Files known to be another's are only kept where the index is the same."""
    verdict = judge(noted, "a", same=same, grown=grown)
    if same or (same is None and noted != "b"):
        assert verdict is Verdict.KEEP
    elif noted == "b" or (noted is None and not grown):
        assert verdict is Verdict.REFUSE
    else:
        assert verdict is Verdict.REPLACE


def test_the_users_cache_is_of_the_place_not_of_its_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in two projects is two caches; all spellings of one folder are one."""
    found: list[Path] = []
    for project in ("one", "two"):
        (tmp_path / project / "data").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / project)
        full = tmp_path / project / "data"
        spellings: list[str] = ["data", "./data/", str(full), full.as_uri(), os.path.relpath(full)]
        folders = {user_cache(one) for one in spellings}
        assert len(folders) == 1
        found.append(folders.pop())
    assert found[0] != found[1]
    assert user_cache("s3://a/b") == user_cache("s3://a/b/") != user_cache("s3://a/c")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"choose": 2.5}, "choose: expected a whole number"),
        ({"choose": True}, "choose"),
        ({"proportion": "0.3"}, "proportion: expected a finite number"),
        ({"repeat": float("nan")}, "repeat"),
        ({"download_retry": -1}, "download_retry"),
        ({"download_retry": 1.5}, "download_retry"),
        ({"download_timeout": 0}, "download_timeout"),
        ({"remote": 3}, "remote: expected a folder or URL"),
        ({"local": b"a"}, "local: expected a folder or URL"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], told: str) -> None:
    """What a stream cannot use is named when it is made."""
    with pytest.raises(SchemaError, match=told):
        _stream({"local": "a", **given})
    assert _stream({"local": "a", "choose": np.int64(3)}).choose == 3
