"""`index`: files of other formats become a data set that needs no listing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.web import WebServer

from streaming_core import Stream, StreamingDataset
from streaming_core._virtual import parse
from streaming_core._virtual._discover import published_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]


def _write(path: Path, first: int, count: int = 5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(first, first + count)}), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return Parquet files in two Hive folders."""
    folder = tmp_path / "data"
    for at in range(4):
        _write(folder / f"y={at % 2}" / f"{at}.parquet", at * 5)
    return folder


def _ids(local: Path, **options: Any) -> list[int]:
    dataset = StreamingDataset(streams=[Stream(local=local, **options)], batch_size=2)
    return sorted(int(dataset[at]["id"]) for at in range(len(dataset)))


def test_the_index_is_written_beside_the_data_and_read_from_there(
    cli: Run, folder: Path, tmp_path: Path
) -> None:
    """It wins until it is written anew: files that came later are not looked at."""
    result = cli("index", f"{folder}/**/*.parquet", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    name = published_name("**/*.parquet")
    assert report == {
        "url": folder.as_uri(),
        "index": f"{folder.as_uri()}/{name}",
        "action": "written",
        "format": "parquet",
        "num_files": 4,
        "num_units": 4,
        "num_rows": 20,
        "num_bytes": size,
        "unit_rows": {"min": 5, "median": 5, "max": 5},
        "unit_bytes": report["unit_bytes"],
        "advice": [],
        "index_bytes": (folder / name).stat().st_size,
        "added": [],
        "removed": [],
        "replaced": [],
    }
    _write(folder / "y=0" / "later.parquet", 100)
    pattern = f"{folder}/**/*.parquet"
    assert _ids(tmp_path / "a", remote=pattern) == list(range(20))
    assert cli("index", pattern).exit_code == 0
    assert _ids(tmp_path / "a", remote=pattern) == [*range(20), *range(100, 105)]


def test_people_read_the_counts(cli: Run, folder: Path) -> None:
    """The text has files, rows, units and sizes."""
    lines = [line.split() for line in cli("index", folder).stdout.splitlines()]
    found = {line[0]: line[1:] for line in lines}
    assert found["rows"] == ["20"]
    assert found["units"] == ["4"]
    assert found["files"][0] == "4"
    assert found["state"][0] == "written,"


def test_check_says_what_changed(cli: Run, folder: Path) -> None:
    """By name; nothing is written, and the exit code tells."""
    missing = cli("index", folder, "--check")
    assert missing.exit_code == 2
    assert "error [index-missing]" in missing.stderr
    assert cli("index", folder).exit_code == 0
    assert cli("index", folder, "--check").exit_code == 0
    before = (folder / published_name("")).read_bytes()
    (folder / "y=0" / "0.parquet").unlink()
    _write(folder / "y=1" / "1.parquet", 500, 7)
    _write(folder / "y=2" / "new.parquet", 900)
    result = cli("index", folder, "--check", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["added"], report["removed"], report["replaced"]) == (
        ["y=2/new.parquet"],
        ["y=0/0.parquet"],
        ["y=1/1.parquet"],
    )
    text = cli("index", folder, "--check").stdout
    assert "removed  y=0/0.parquet" in text
    assert (folder / published_name("")).read_bytes() == before


def test_running_it_again_looks_at_what_is_new(
    cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at nothing where nothing changed; then nothing is written either."""
    from streaming_core._virtual._kinds._parquet import Parquet

    looked: list[str] = []
    scan = Parquet.scan

    def noted(self: Parquet, reader: Any) -> Any:
        looked.append(reader.file.key)
        return scan(self, reader)

    monkeypatch.setattr(Parquet, "scan", noted)
    assert cli("index", folder).exit_code == 0
    assert len(looked) == 4
    looked.clear()
    path = folder / published_name("")
    stamp = path.stat().st_mtime_ns
    assert json.loads(cli("index", folder, "--json").stdout)["action"] == "unchanged"
    assert path.stat().st_mtime_ns == stamp
    assert not looked
    _write(folder / "y=0" / "later.parquet", 100)
    report = json.loads(cli("index", folder, "--json").stdout)
    assert report["added"] == looked == ["y=0/later.parquet"]
    assert report["num_rows"] == 25


def test_a_broken_index_is_written_anew(cli: Run, folder: Path) -> None:
    """While looking at it is an error."""
    path = folder / published_name("")
    path.parent.mkdir()
    path.write_bytes(b"no index")
    assert cli("index", folder, "--check").exit_code == 2
    assert cli("index", folder).exit_code == 0
    assert parse(path.read_bytes(), "x").num_files == 4


def test_it_may_be_kept_elsewhere(cli: Run, folder: Path, tmp_path: Path) -> None:
    """Where the data cannot be written to; a stream is told where."""
    out = tmp_path / "some" / "place.index"
    pattern = f"{folder}/**/*.parquet"
    assert cli("index", pattern, "--out", out).exit_code == 0
    assert not (folder / ".streaming").exists()
    assert cli("index", pattern, "--out", out, "--check").exit_code == 0
    _write(folder / "y=0" / "later.parquet", 100)
    assert _ids(tmp_path / "a", remote=pattern, index=out) == list(range(20))
    assert len(_ids(tmp_path / "b", remote=pattern)) == 25
    assert cli("index", pattern, "--out", out, "--check").exit_code == 1
    assert cli("index", pattern, "--out", f"{tmp_path}/").exit_code == 2


def test_where_nothing_can_be_written_the_way_out_is_said(
    cli: Run, folder: Path, tmp_path: Path
) -> None:
    """Here a file stands where the folder of the index would be."""
    (folder / ".streaming").write_text("in the way")
    refused = cli("index", folder)
    assert refused.exit_code == 2
    assert "--out FILE" in refused.stderr
    assert cli("index", folder, "--out", tmp_path / "i").exit_code == 0
    assert len(_ids(tmp_path / "local", remote=folder, index=tmp_path / "i")) == 20


def test_one_file_on_a_server_without_a_listing(cli: Run, folder: Path, tmp_path: Path) -> None:
    """It is asked for by its name."""
    with WebServer() as server:
        path = folder / "y=0" / "0.parquet"
        server.files.put("d/a.parquet", path.read_bytes())
        place = f"{server.url}/d/a.parquet"
        assert cli("index", place, "--out", tmp_path / "i").exit_code == 0
        assert _ids(tmp_path / "a", remote=place, index=tmp_path / "i") == list(range(5))
        assert _ids(tmp_path / "b", remote=place) == list(range(5))


def test_options_of_the_format_are_kept(cli: Run, tmp_path: Path) -> None:
    """Those given before hold until others are given."""
    (tmp_path / "a.csv").write_text("id;b\n1;x\n2;y\n")
    assert cli("index", tmp_path, "--format", "csv", "--option", "delimiter=;").exit_code == 0
    assert cli("index", tmp_path).exit_code == 0
    index = parse((tmp_path / published_name("")).read_bytes(), "x")
    assert dict(index.options) == {"delimiter": ";"}
    assert index.schema(0).names == ["id", "b"]
    assert _ids(tmp_path / "local", remote=tmp_path, format="csv") == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "nope"], "no format 'nope'"),
        (["--option", "x=1"], "does not take x"),
        (["--option", "x"], "takes name=value"),
        (["--storage-option", "x=1"], "x"),
    ],
)
def test_what_cannot_be_used_is_said(
    cli: Run, folder: Path, arguments: list[str], says: str
) -> None:
    """With exit code 2, and nothing is written."""
    result = cli("index", folder, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (folder / ".streaming").exists()


def test_nothing_there_is_said(cli: Run, tmp_path: Path) -> None:
    """No folder, no files, a broken file."""
    assert "does not exist" in cli("index", tmp_path / "gone").stderr
    assert "no known format" in cli("index", tmp_path).stderr
    (tmp_path / "a.parquet").write_bytes(b"nothing of it")
    result = cli("index", tmp_path)
    assert result.exit_code == 2
    assert "a.parquet: no Parquet file" in result.stderr
