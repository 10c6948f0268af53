"""What caches keep of data that nobody converted, and what is removed of it, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.reader.waiting import until_fetched

from streaming_core import MDSWriter, create_dataloader
from streaming_core.errors import StoreError
from streaming_reader._cache import Kept, kept_below, remove_kept, tidy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

_ROWS = 4000
_GROUP = 500
_DAY = 86_400
_MONTH = 31 * _DAY


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with two files whose row groups are units of their own."""
    folder = tmp_path / "data"
    folder.mkdir()
    for at in range(2):
        _write(folder / f"{at}.parquet", at * _ROWS)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's cache, which is this test's own."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "home"))
    return tmp_path / "home"


def _write(path: Path, first: int) -> None:
    ids = range(first, first + _ROWS)
    table = pa.table({"id": pa.array(ids), "text": [f"{number:3000}" for number in ids]})
    pq.write_table(table, path, row_group_size=_GROUP)


def _read(data: Path, columns: Sequence[str] | None = None, **given: Any) -> list[int]:
    loader, _ = create_dataloader(
        f"{data}/*.parquet", batch_size=_GROUP, columns=columns, batch_format="dict", **given
    )
    name = "id" if columns is None else columns[0]
    found = [value for batch in loader for value in batch[name]]
    del loader
    until_fetched()  # what is mapped counts as in use
    return found


def _age(folder: str | Path, seconds: float) -> None:
    """Let all files below a folder be that old, but for what a process just then moves."""
    then = time.time() - seconds
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                os.utime(os.path.join(at, name), (then, then))  # noqa: PTH118 - as walk gives them


def _decoded(home: Path) -> list[Kept]:
    return [kept for kept in kept_below(str(home)) if kept.what == "decoded"]


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_all_that_is_kept_is_found(data: Path, home: Path, tmp_path: Path) -> None:
    """Every byte below the user's cache, each once, with what it was made of."""
    with MDSWriter(out=tmp_path / "shards", columns={"id": "int"}) as out:
        for number in range(10):
            out.write({"id": number})
    for columns in (["id"], ["text"], None):
        _read(data, columns)
    loader, _ = create_dataloader(f"file://{tmp_path}/shards", batch_size=5)
    assert len(list(loader)) == 2
    del loader
    found = kept_below(str(home))
    assert sorted(kept.what for kept in found) == ["decoded"] * 3 + ["index", "shards"]
    assert sum(kept.num_bytes for kept in found) == _bytes_below(home)
    for kept in found:
        wanted = f"{tmp_path}/shards" if kept.what == "shards" else f"{data}/*.parquet"
        assert kept.sources == (f"file://{wanted}",)
        assert time.time() - kept.last_used < _DAY
    assert not kept_below(str(data))
    assert not kept_below(str(tmp_path / "shards"))


def test_what_is_removed_is_made_again(data: Path, home: Path) -> None:
    """After removing everything nothing is left, and reading gives the same."""
    before = _read(data)
    found = kept_below(str(home))
    assert sum(map(remove_kept, found)) == sum(kept.num_bytes for kept in found) > 0
    assert list(home.iterdir()) == []
    assert _read(data) == before == list(range(2 * _ROWS))


def test_foreign_files_are_left_alone(data: Path, home: Path) -> None:
    """Whoever gives a folder with other things in it as `local` finds these again."""
    local = data.parent / "mine"
    (local / "parquet-notes").mkdir(parents=True)
    strangers = [local / "a.arrow", local / "parquet-notes" / "x.arrow"]
    _read(data, local=local)
    (view,) = (kept for kept in kept_below(str(local)) if kept.what == "decoded")
    strangers.append(local / os.path.relpath(view.folder, local) / "my.arrow")
    for path in strangers:
        path.write_bytes(b"mine")
    _age(local, _MONTH)
    for kept in kept_below(str(local)):
        remove_kept(kept)
    assert sorted(path for path in local.rglob("*") if path.is_file()) == sorted(strangers)
    assert not home.exists()


_HOLDER = """
import sys
from streaming_core import create_dataloader
loader, _ = create_dataloader(sys.argv[1], batch_size=500, batch_format="dict")
batches = iter(loader)
seen = next(batches)["id"]
print("ready", flush=True)
sys.stdin.readline()
for batch in batches:
    seen += batch["id"]
print(len(seen), sum(seen))
"""


@pytest.mark.process
def test_what_a_process_uses_stays(data: Path, home: Path) -> None:
    """However old its files look, and it reads on to the end; after it they may go."""
    place = f"{data}/*.parquet"
    command = [sys.executable, "-c", _HOLDER, place]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        _age(home, _MONTH)
        (view,) = _decoded(home)
        assert view.in_use
        assert all(kept.in_use for kept in kept_below(str(home)))  # the index of that, too
        _read(data, ["id"])
        assert len(_decoded(home)) == 2
        # Even if told to: what is mapped stays, and the rest is made again.
        remove_kept(view)
        out, _ = other.communicate("\n")
    assert out.split() == [str(2 * _ROWS), str(sum(range(2 * _ROWS)))]
    assert not any(kept.in_use for kept in kept_below(str(home)))


def test_views_that_nobody_used_for_a_month_go_by_themselves(data: Path, home: Path) -> None:
    """When another view of the same data is opened; younger ones stay, and so does what is used."""
    for columns in (["id"], ["text"]):
        _read(data, columns)
    one, other = _decoded(home)
    _age(one.folder, _MONTH)
    _age(other.folder, 20 * _DAY)
    _read(data)
    assert {kept.folder for kept in _decoded(home)} > {other.folder}
    assert len(_decoded(home)) == 2
    assert not os.path.exists(one.folder)  # noqa: PTH110 - a text


@pytest.mark.parametrize("columns", [["id"], ["text"]])
def test_use_is_noted(data: Path, home: Path, columns: list[str]) -> None:
    """A view whose files were made long ago, and which was read now, was used now."""
    _read(data, columns)
    (view,) = _decoded(home)
    _age(home, _MONTH)
    assert time.time() - _decoded(home)[0].last_used > 30 * _DAY
    _read(data, columns)
    assert time.time() - _decoded(home)[0].last_used < _DAY
    _read(data)
    assert view.folder in {kept.folder for kept in _decoded(home)}


def test_units_of_versions_that_are_gone_go_by_themselves(data: Path, home: Path) -> None:
    """A month after the file was replaced, and not those of files that are still the same."""
    _read(data)
    (view,) = _decoded(home)
    _write(data / "1.parquet", 9 * _ROWS)
    assert max(_read(data)) == 10 * _ROWS - 1
    units = {name for name in view.files if name.endswith(".arrow")}
    assert units < {name for name in _decoded(home)[0].files if name.endswith(".arrow")}
    _age(home, _MONTH)
    assert max(_read(data)) == 10 * _ROWS - 1
    now = {name for name in _decoded(home)[0].files if name.endswith(".arrow")}
    assert len(now) == len(units)
    assert len(now & units) == len(units) // 2
    assert _read(data)[:_ROWS] == list(range(_ROWS))


def test_tidying_never_fails(tmp_path: Path) -> None:
    """A folder that is not there, or no folder."""
    tidy(str(tmp_path / "none" / "parquet-0123456789abcdef"), list)
    (tmp_path / "file").write_bytes(b"")
    tidy(str(tmp_path / "file" / "parquet-0123456789abcdef"), list)
    assert kept_below(str(tmp_path / "none")) == []


def test_hostile_folders_are_looked_at(tmp_path: Path) -> None:
    """Notes that are none, links to elsewhere, a broken index: no error, and no foreign file."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x.arrow").write_bytes(b"mine")
    place = tmp_path / "home" / "p"
    control = place / ".streaming"
    control.mkdir(parents=True)
    for name, text in (("source", "[1"), ("ledger", ""), ("source-1.json", '{"url": 3}')):
        (control / name).write_text(text)
    (place / "index.json").write_text('{"version": 2, "shards": 7}')
    (place / "link").symlink_to(secret, target_is_directory=True)
    (control / "parts").symlink_to(secret, target_is_directory=True)
    for kept in kept_below(str(tmp_path / "home")):
        assert kept.sources == ()
        remove_kept(kept)
    assert (secret / "x.arrow").read_bytes() == b"mine"
    assert (place / "index.json").exists()


def test_a_cache_that_cannot_be_written_says_what_else_there_is(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the argument and the variable, whatever is in the way."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "file" / "home"))
    with pytest.raises(StoreError, match=r"local=.*STREAMING_CACHE_DIR"):
        _read(data)
