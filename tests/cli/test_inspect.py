"""`inspect`: what a data set is, without reading all of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from streaming_core import MDSWriter, load_index, merge_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]
    Copy = Callable[[str], Path]
    BreakOff = Callable[..., int]

NAMES = (
    *("csv", "jsonl", "mds_all", "mds_br", "mds_bz2", "mds_gz", "mds_hashed", "mds_snappy"),
    *("mds_zstd", "ids_big", "ids_even", "ids_one", "ids_ragged", "ids_tiny"),
)


class Bomb:
    """An object whose unpickling would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.trace), "w")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_golden_data_sets_are_those_of_the_index(
    cli: Run, golden: Path, name: str
) -> None:
    """Samples, shards and sizes agree with what the other writer's index says."""
    document = json.loads((golden / name / "index.json").read_text())
    shards = document["shards"]
    result = cli("inspect", golden / name, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["state"] == "finished"
    data = found["data"]
    assert data["num_shards"] == len(shards)
    assert data["num_samples"] == sum(shard["samples"] for shard in shards)
    files = [
        file for shard in shards for file in (shard["raw_data"], shard.get("raw_meta")) if file
    ]
    assert data["raw_bytes"] == sum(file["bytes"] for file in files)
    stored = [path for path in (golden / name).iterdir() if path.name.startswith("shard.")]
    assert data["stored_bytes"] == sum(path.stat().st_size for path in stored)
    (schema,) = data["schemas"]
    assert schema["compression"] == shards[0]["compression"]
    assert list(schema["hashes"]) == shards[0]["hashes"]
    assert all(column["example"] is not None for column in schema["columns"])


def test_a_missing_place_is_one_line_of_every_command(cli: Run, tmp_path: Path) -> None:
    """The error says what is missing and its kind, on standard error, with exit code 2."""
    for command in ("inspect", "head", "verify", "merge"):
        result = cli(command, tmp_path / "nowhere")
        assert (result.exit_code, result.stdout) == (2, ""), command
        assert result.stderr.startswith("error [index-missing]: "), command
        assert "nowhere does not exist" in result.stderr, command
        assert result.stderr.count("\n") == 1, command


def test_json_is_one_document(cli: Run, golden: Path) -> None:
    """A script can parse the whole of standard output of `inspect` and `verify`."""
    for command in ("inspect", "verify"):
        result = cli(command, golden / "mds_zstd", "--json")
        assert (result.exit_code, result.stderr) == (0, ""), command
        assert result.stdout.count("\n") == 1, command
        assert json.loads(result.stdout)["url"] == (golden / "mds_zstd").as_uri(), command


def test_people_see_columns_sizes_and_values(cli: Run, golden: Path) -> None:
    """The tables name each column with its encoding, its size and the first sample's value."""
    result = cli("inspect", golden / "mds_zstd")
    assert result.exit_code == 0
    for text in ("zstd:7 (ratio 1.", "ndarray:uint16:3,4", "varies", "uint16[3, 4]:", "median"):
        assert text in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_the_index_itself_may_be_named(cli: Run, golden: Path) -> None:
    """Naming index.json does what naming its folder does."""
    folder = cli("inspect", golden / "csv", "--json")
    assert cli("inspect", golden / "csv" / "index.json", "--json").stdout == folder.stdout


def test_pickled_values_are_not_decoded(cli: Run, tmp_path: Path) -> None:
    """A column that could run code is shown by its size, unless it is allowed by name."""
    trace = tmp_path / "trace"
    with MDSWriter(out=tmp_path / "data", columns={"p": "pkl", "i": "int"}) as out:
        out.write({"p": Bomb(trace), "i": 7})
    for command in ("inspect", "head", "verify"):
        result = cli(command, tmp_path / "data")
        assert result.exit_code == 0
        assert not trace.exists()
    assert "pickled, " in cli("inspect", tmp_path / "data").stdout
    assert "not decoded, for it could run code: p" in cli("verify", tmp_path / "data").stdout


def test_pickled_values_can_be_allowed(cli: Run, tmp_path: Path) -> None:
    """With `--allow-unsafe-types` the object itself is shown."""
    with MDSWriter(out=tmp_path / "data", columns={"p": "pkl"}) as out:
        out.write({"p": {"key": (1, 2)}})
    result = cli("inspect", tmp_path / "data", "--allow-unsafe-types")
    assert result.exit_code == 0
    assert "{'key': (1, 2)}" in result.stdout


def test_what_the_data_holds_cannot_command_the_terminal(cli: Run, tmp_path: Path) -> None:
    """Escape sequences and markup in names and values are shown as text."""
    columns = {"\x1b[2J[bold]": "str"}
    with MDSWriter(out=tmp_path / "data", columns=columns) as out:
        out.write({"\x1b[2J[bold]": "\x1b]0;owned\x07[red]x[/nothing]"})
    for command in ("inspect", "head"):
        result = cli(command, tmp_path / "data")
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout
        assert "[red]x[/nothing]" in result.stdout
    assert "\\x1b[2J[bold]" in result.stdout


def test_a_data_set_without_samples_is_described(cli: Run, tmp_path: Path) -> None:
    """An empty data set is fine: it has no shards and no schemas."""
    with MDSWriter(out=tmp_path / "data", columns={"i": "int"}):
        pass
    data = json.loads(cli("inspect", tmp_path / "data", "--json").stdout)["data"]
    assert (data["num_samples"], data["num_shards"], data["samples_per_shard"]) == (0, 0, None)
    for command in ("inspect", "head", "verify"):
        assert cli(command, tmp_path / "data").exit_code == 0


def test_empty_shards_are_counted_and_skipped_for_the_example(cli: Run, tmp_path: Path) -> None:
    """The first sample may lie in a later shard."""
    with MDSWriter(out=tmp_path / "data", columns={"b": "bytes"}, size_limit=300) as out:
        out.write({"b": b"x" * 400})
    data = json.loads(cli("inspect", tmp_path / "data", "--json").stdout)["data"]
    assert data["num_empty_shards"] == 1
    assert data["samples_per_shard"] == {"min": 0, "median": 0, "max": 1}
    assert data["schemas"][0]["columns"][0]["example"].startswith("400 bytes: 7878")


def test_an_unfinished_conversion_is_told_with_what_is_safe(
    cli: Run, tmp_path: Path, break_off: BreakOff
) -> None:
    """The samples counted are those that a resumed writer keeps."""
    break_off(tmp_path / "data")
    found = json.loads(cli("inspect", tmp_path / "data", "--json").stdout)
    assert found["state"] == "unfinished"
    safe = found["unfinished"]["num_safe_samples"]
    with MDSWriter(out=tmp_path / "data", resume=True, size_limit=500) as out:
        assert safe == out.num_safe_samples > 0
    assert json.loads(cli("inspect", tmp_path / "data", "--json").stdout)["unfinished"] is None


def test_people_are_told_how_to_resume(cli: Run, tmp_path: Path, break_off: BreakOff) -> None:
    """The text names resume=True and the number of samples to skip."""
    break_off(tmp_path / "data")
    result = cli("inspect", tmp_path / "data")
    assert result.exit_code == 0
    assert "unfinished conversion" in result.stdout
    assert "resume=True" in result.stdout


def test_a_file_missing_from_an_unfinished_conversion_is_not_safe(
    cli: Run, tmp_path: Path, break_off: BreakOff
) -> None:
    """Only the unbroken run of shards whose files are there counts."""
    break_off(tmp_path / "data")
    (tmp_path / "data" / "shard.00000.mds").unlink()
    found = json.loads(cli("inspect", tmp_path / "data", "--json").stdout)
    assert found["unfinished"]["num_safe_samples"] == 0


def test_sub_folders_with_data_are_listed(
    cli: Run, copy: Copy, tmp_path: Path, break_off: BreakOff
) -> None:
    """Splits and parts below the place are named with their samples, broken ones as such."""
    copy("csv")
    copy("ids_one")
    (tmp_path / "ids_one" / "index.json").write_text("{")
    break_off(tmp_path / "part")
    found = json.loads(cli("inspect", tmp_path, "--json").stdout)
    assert found["state"] == "parts"
    assert found["parts"] == [
        {"path": "csv", "num_samples": 41, "state": "finished"},
        {"path": "ids_one", "num_samples": None, "state": "broken"},
        {"path": "part", "num_samples": None, "state": "unfinished"},
    ]
    assert "streaming-core merge" in cli("inspect", tmp_path).stdout


def test_several_schemas_are_shown_apart(cli: Run, tmp_path: Path) -> None:
    """A merged data set of two kinds shows each with its own columns."""
    for part, columns in enumerate(({"a": "int"}, {"a": "str_int"})):
        with MDSWriter(out=tmp_path, columns=columns, part=part) as out:
            out.write({"a": 1})
    merge_index(tmp_path)
    data = json.loads(cli("inspect", tmp_path, "--json").stdout)["data"]
    shown = [[column["encoding"] for column in schema["columns"]] for schema in data["schemas"]]
    assert shown == [["int"], ["str_int"]]
    assert "schema 2 of 2: mds, 1 sample in 1 shard" in cli("inspect", tmp_path).stdout


def test_a_missing_shard_hides_only_the_values(cli: Run, written: Path) -> None:
    """What the index says is shown although the first shard is gone; the reason is told."""
    (written / "shard.00000.mds").unlink()
    result = cli("inspect", written, "--json")
    assert result.exit_code == 0
    (schema,) = json.loads(result.stdout)["data"]["schemas"]
    assert "shard.00000.mds" in schema["no_example"]
    assert "no values shown" in cli("inspect", written).stdout


def test_a_broken_index_lists_its_problems(cli: Run, written: Path) -> None:
    """Every problem comes with its JSON path, and the exit code says it cannot be read."""
    (written / "index.json").write_text('{"version": 3, "shards": [7]}')
    result = cli("inspect", written)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error [index-invalid]" in result.stderr
    assert "$.version" in result.stderr
    assert "$.shards[0]" in result.stderr


def test_fingerprint_and_sums_are_told(cli: Run, written: Path) -> None:
    """The document has the fingerprint that the table computes, and whether there are sums."""
    data = json.loads(cli("inspect", written, "--json").stdout)["data"]
    assert data["has_sums"] is True
    assert data["fingerprint"] == load_index(written).fingerprint()


def test_nothing_is_written(cli: Run, copy: Copy) -> None:
    """Looking leaves the folder as it was."""
    folder = copy("jsonl")
    before = sorted(path.name for path in folder.iterdir())
    for command in ("inspect", "head", "verify"):
        cli(command, folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    shutil.rmtree(folder)
