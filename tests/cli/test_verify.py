"""`verify`: finds everything that is wrong, and nothing where nothing is."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.profiles import examples

from streaming_core import JSONWriter, MDSWriter, merge_index, open_store
from streaming_core.cli._verify import verify_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]
    Copy = Callable[[str], Path]

NAMES = (
    *("csv", "jsonl", "mds_all", "mds_br", "mds_bz2", "mds_gz", "mds_hashed", "mds_snappy"),
    *("mds_zstd", "ids_big", "ids_even", "ids_one", "ids_ragged", "ids_tiny"),
)


def _report(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return document


def _kinds(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(item["shard"], item["file"], item["kind"]) for item in report["problems"]]


@pytest.mark.parametrize("name", NAMES)
def test_golden_data_sets_are_sound(cli: Run, golden: Path, name: str) -> None:
    """Every sample of every data set of the other writer decodes, and nothing is complained of."""
    report = _report(cli("verify", golden / name, "--json", "--workers", 2))
    assert (report["ok"], report["problems"], report["warnings"]) == (True, [], [])
    assert report["num_decoded"] == report["num_samples"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_every_missing_file_is_listed(cli: Run, copy: Copy, name: str) -> None:
    """All files that are gone are named with their shards, also by the fast check."""
    folder = copy(name)
    files = sorted(path.name for path in folder.iterdir() if path.name.startswith("shard."))
    for file in files:
        (folder / file).unlink()
    for fast in ([], ["--fast"]):
        report = _report(cli("verify", folder, "--json", *fast))
        assert sorted(item["file"] for item in report["problems"]) == files
        assert {item["kind"] for item in report["problems"]} == {"missing"}


@pytest.mark.parametrize("fast", [[], ["--fast"]])
def test_cut_files_are_listed(cli: Run, copy: Copy, fast: list[str]) -> None:
    """A file that is shorter than the index says is found, without reading it."""
    folder = copy("mds_zstd")
    for number in (1, 3):
        file = folder / f"shard.0000{number}.mds.zstd"
        file.write_bytes(file.read_bytes()[:-1])
    assert _kinds(_report(cli("verify", folder, "--json", *fast))) == [
        (1, "shard.00001.mds.zstd", "shard-size"),
        (3, "shard.00003.mds.zstd", "shard-size"),
    ]


def test_problems_of_different_kinds_are_all_found(cli: Run, written: Path) -> None:
    """One run lists a missing file, a cut one and a changed one."""
    (written / "shard.00000.mds").unlink()
    cut = written / "shard.00001.mds"
    cut.write_bytes(cut.read_bytes()[:-5])
    flipped = written / "shard.00002.mds"
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    report = _report(cli("verify", written, "--json"))
    assert _kinds(report) == [
        (0, "shard.00000.mds", "missing"),
        (1, "shard.00001.mds", "shard-size"),
        (2, "shard.00002.mds", "checksum"),
    ]
    shown = cli("verify", written)
    assert shown.exit_code == 1
    assert "3 problems: 3 shards" in shown.stdout


@given(position=st.integers(0, 10**6), bit=st.integers(0, 7), shard=st.integers(0, 2))
@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_flipped_bit_is_found(written: Path, position: int, bit: int, shard: int) -> None:
    """With a file of sums, no single changed bit of any shard goes unseen."""
    file = written / f"shard.{shard:05d}.mds"
    sound = file.read_bytes()
    data = bytearray(sound)
    data[position % len(data)] ^= 1 << bit
    file.write_bytes(data)
    report = verify_place(open_store(written))
    file.write_bytes(sound)
    assert (shard, "checksum") in [(found.shard, found.kind) for found in report.problems]


@pytest.mark.parametrize("name", ["mds_br", "mds_bz2", "mds_gz", "mds_snappy", "mds_zstd", "csv"])
def test_zeroed_files_are_found_without_any_hash(cli: Run, copy: Copy, name: str) -> None:
    """A file of the right size that holds only zeros is no shard, whatever the compression."""
    folder = copy(name)
    for file in folder.glob("shard.00000.*"):
        file.write_bytes(bytes(file.stat().st_size))
    report = _report(cli("verify", folder, "--json"))
    assert {item["shard"] for item in report["problems"]} == {0}
    assert _report(cli("verify", folder, "--json", "--fast"))["ok"]


def test_hashes_in_the_index_are_checked(cli: Run, copy: Copy) -> None:
    """A hash that does not match is told by its name, for the file before and after expansion."""
    folder = copy("mds_hashed")
    document = json.loads((folder / "index.json").read_text())
    document["shards"][0]["raw_data"]["hashes"]["sha1"] = "00" * 20
    document["shards"][2]["zip_data"]["hashes"]["md5"] = "00" * 16
    (folder / "index.json").write_text(json.dumps(document))
    report = _report(cli("verify", folder, "--json"))
    assert _kinds(report) == [
        (0, "shard.00000.mds", "checksum"),
        (2, "shard.00002.mds.zstd", "checksum"),
    ]
    assert "sha1" in report["problems"][0]["text"]
    assert "md5" in report["problems"][1]["text"]


def test_wrong_sums_are_found(cli: Run, written: Path) -> None:
    """A line of the file of sums that does not match its file is a problem."""
    sums = written / "checksums.xxh128"
    lines = sums.read_text().splitlines()
    lines[1] = "0" * 32 + lines[1][32:]
    sums.write_text("\n".join(lines) + "\n")
    assert _kinds(_report(cli("verify", written, "--json"))) == [(1, "shard.00001.mds", "checksum")]


@pytest.mark.parametrize("content", [b"no sums at all\n", b"\xff\xfe", b"x\n"])
def test_a_broken_file_of_sums_is_a_problem_of_its_own(
    cli: Run, written: Path, content: bytes
) -> None:
    """The shards are checked all the same."""
    (written / "checksums.xxh128").write_bytes(content)
    report = _report(cli("verify", written, "--json"))
    assert _kinds(report) == [(None, "checksums.xxh128", "checksums")]
    assert report["num_decoded"] == 30


def test_sums_of_unknown_files_and_files_without_sums_are_warnings(cli: Run, written: Path) -> None:
    """A file of sums that covers other files than the index does no harm, and is told."""
    sums = written / "checksums.xxh128"
    sums.write_text(sums.read_text().replace("shard.00001.mds", "other.mds"))
    report = _report(cli("verify", written, "--json"))
    assert report["ok"]
    assert {item["kind"] for item in report["warnings"]} == {"stray-sum", "no-sum"}


def test_an_invalid_index_gives_all_its_problems(cli: Run, written: Path) -> None:
    """Problems come with their JSON path, and nothing else is looked at."""
    (written / "index.json").write_text('{"version": 9, "shards": [{"format": "mds"}, 3]}')
    report = _report(cli("verify", written, "--json"))
    files = {item["file"] for item in report["problems"]}
    assert {"$.version", "$.shards[1]"} <= files
    assert len(report["problems"]) > 5


def test_stray_and_temporary_files_are_warnings(cli: Run, written: Path) -> None:
    """Files that look like shards and are in no index, and those of dead writers, are told."""
    (written / "shard.00009.mds").write_bytes(b"")
    (written / "notes.txt").write_bytes(b"")
    (written / ".shard.00003.mds.4194304-0123456789abcdef0123.tmp").write_bytes(b"")
    (written / "split").mkdir()
    (written / "split" / "index.json").write_text('{"shards": [], "version": 2}')
    (written / "split" / "shard.00000.mds").write_bytes(b"")
    report = _report(cli("verify", written, "--json"))
    assert report["ok"]
    assert [(item["kind"], item["file"]) for item in report["warnings"]] == [
        ("stray", "shard.00009.mds"),
        ("temporary", ".shard.00003.mds.4194304-0123456789abcdef0123.tmp"),
    ]
    assert "ok, 2 warnings: 3 shards" in cli("verify", written).stdout


def test_merged_data_sets_are_checked_in_their_folders(cli: Run, tmp_path: Path) -> None:
    """Shards in sub-folders are found, and so is damage in one of them."""
    for part in range(3):
        with MDSWriter(out=tmp_path, columns={"a": "int"}, part=part) as out:
            out.write({"a": part})
    merge_index(tmp_path)
    assert _report(cli("verify", tmp_path, "--json"))["warnings"] == []
    (tmp_path / "part-00001" / "shard.00000.mds").unlink()
    report = _report(cli("verify", tmp_path, "--json"))
    assert _kinds(report) == [(1, "part-00001/shard.00000.mds", "missing")]


def test_samples_that_do_not_decode_are_listed_up_to_a_bound(cli: Run, tmp_path: Path) -> None:
    """Ten of a shard are named, the others counted, and the sound ones decode."""
    with JSONWriter(out=tmp_path / "data", columns={"a": "int"}) as out:
        for number in range(100):
            out.write({"a": number})
    file = tmp_path / "data" / "shard.00000.json"
    lines = file.read_bytes().splitlines(keepends=True)
    wrong = [line.replace(b'"a"', b'"b"') for line in lines[:30]]
    file.write_bytes(b"".join([*wrong, *lines[30:]]))
    report = _report(cli("verify", tmp_path / "data", "--json"))
    assert report["num_decoded"] == 70
    assert len(report["problems"]) == 11
    assert "sample 0" in report["problems"][0]["text"]
    assert report["problems"][-1]["text"] == "20 more samples do not decode"


def test_pictures_are_decoded_to_the_last_pixel(cli: Run, tmp_path: Path) -> None:
    """A picture that is cut short opens without complaint, and is found all the same."""
    file = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(file, "PNG")
    with MDSWriter(out=tmp_path / "data", columns={"p": "png"}) as out:
        out.write({"p": file.getvalue()})
        out.write({"p": file.getvalue()[: len(file.getvalue()) // 2]})
    report = _report(cli("verify", tmp_path / "data", "--json"))
    assert _kinds(report) == [(0, "shard.00000.mds", "shard-corrupt")]
    assert report["problems"][0]["text"].startswith("sample 1: ")


def test_no_index_says_how_to_make_one(cli: Run, written: Path) -> None:
    """Without an index there is nothing to verify, and --fix is named."""
    (written / "index.json").unlink()
    result = cli("verify", written)
    assert result.exit_code == 2
    assert "verify --fix" in result.stderr


def test_progress_reaches_all_shards(golden: Path) -> None:
    """The callback sees every shard, in order, from the thread that called."""
    seen: list[tuple[int, int]] = []
    verify_place(
        open_store(golden / "ids_big"),
        workers=3,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, 20) for done in range(21)]


def test_a_memory_store_can_be_verified() -> None:
    """Nothing in the check needs a folder."""
    store = open_store("memory://verify")
    with MDSWriter(out="memory://verify", columns={"a": "int"}, keep_local=False) as out:
        out.write({"a": 1})
    assert verify_place(store).ok
    store.delete("shard.00000.mds")
    assert [found.kind for found in verify_place(store, fast=True).problems] == ["missing"]


@pytest.mark.parametrize("flag", ["--force", "--allow-gaps"])
def test_flags_of_fix_are_refused_without_it(cli: Run, written: Path, flag: str) -> None:
    """A flag that would do nothing is an error, not silence."""
    result = cli("verify", written, flag)
    assert result.exit_code == 2
    assert f"{flag} belongs to --fix" in result.stderr
