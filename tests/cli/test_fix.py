"""`verify --fix`: an index from the shards, equal to the one the writer made."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import CSVWriter, JSONWriter, MDSWriter, XSVWriter, load_index
from streaming_core._codec import compressions, parse_compression
from streaming_core._store import LocalStore
from streaming_core.cli._inflate import inflate
from streaming_core.errors import DecompressionError

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


def _fixed(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_index_is_rebuilt_byte_for_byte(
    cli: Run, copy: Copy, golden: Path, name: str
) -> None:
    """The rebuilt index of every golden data set is the file that the other writer made."""
    folder = copy(name)
    (folder / "index.json").unlink()
    report = _fixed(cli("verify", folder, "--fix", "--json"))
    assert report["fix"]["action"] == "rebuilt"
    assert report["fix"]["reason"] == "missing"
    wanted = (golden / name / "index.json").read_bytes()
    assert (folder / "index.json").read_bytes() == wanted


@pytest.mark.parametrize(
    ("writer", "compression"),
    [
        *((MDSWriter, name) for name in (None, "br", "bz2:1", "gz:6", "snappy", "zstd:5")),
        *((JSONWriter, name) for name in (None, "br", "snappy")),
        *((CSVWriter, name) for name in (None, "bz2:1", "zstd:5")),
        *((XSVWriter, name) for name in (None, "gz:6")),
    ],
)
def test_what_we_wrote_is_rebuilt_byte_for_byte(
    cli: Run, tmp_path: Path, writer: Any, compression: str | None
) -> None:
    """Each of our formats, with each compression and with hashes, comes back equal."""
    options = {"separator": "|"} if writer is XSVWriter else {}
    with writer(
        out=tmp_path / "data",
        columns={"i": "int", "s": "str"},
        compression=compression,
        hashes=["sha1", "xxh64"],
        size_limit=500,
        checksums=True,
        **options,
    ) as out:
        for number in range(100):
            out.write({"i": number, "s": f"text {number}"})
    index = tmp_path / "data" / "index.json"
    wanted = index.read_bytes()
    index.unlink()
    report = _fixed(cli("verify", tmp_path / "data", "--fix", "--json"))
    assert report["has_sums"]
    assert report["num_decoded"] == 100
    assert index.read_bytes() == wanted


@pytest.mark.parametrize("content", [b"", b"{", b'{"shards": 1, "version": 2}'])
def test_a_broken_index_is_replaced_and_kept(cli: Run, written: Path, content: bytes) -> None:
    """What was there stays as index.json.bad, and a second broken one does not overwrite it."""
    index = written / "index.json"
    wanted = index.read_bytes()
    index.write_bytes(content)
    assert _fixed(cli("verify", written, "--fix", "--json"))["fix"]["kept_as"] == "index.json.bad"
    assert index.read_bytes() == wanted
    index.write_bytes(b"other")
    assert _fixed(cli("verify", written, "--fix", "--json"))["fix"]["kept_as"] == "index.json.bad.1"
    assert (written / "index.json.bad").read_bytes() == content
    assert (written / "index.json.bad.1").read_bytes() == b"other"


def test_a_valid_index_is_never_touched(cli: Run, written: Path) -> None:
    """Even where a shard is damaged, or the text is not as we would write it, it stays."""
    index = written / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()), indent=1))
    before = index.read_bytes(), index.stat().st_mtime_ns
    (written / "shard.00002.mds").unlink()
    report = _fixed(cli("verify", written, "--fix", "--json"))
    assert (report["ok"], report["fix"]["action"]) == (False, "none")
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before


def test_gaps_are_refused_and_listed(cli: Run, copy: Copy) -> None:
    """Missing numbers are named, and no index appears."""
    folder = copy("ids_big")
    (folder / "index.json").unlink()
    for number in (0, 7, 8, 9):
        (folder / f"shard.{number:05d}.mds").unlink()
    result = cli("verify", folder, "--fix")
    assert result.exit_code == 1
    assert "shard(s) 0, 7-9 are not there" in " ".join(result.stdout.split())
    assert not (folder / "index.json").exists()


def test_gaps_can_be_allowed(cli: Run, copy: Copy) -> None:
    """With `--allow-gaps` the others make the data set, and the report names what is left out."""
    folder = copy("ids_even")
    (folder / "index.json").unlink()
    (folder / "shard.00004.mds").unlink()
    report = _fixed(cli("verify", folder, "--fix", "--allow-gaps", "--json"))
    assert report["fix"]["missing_numbers"] == [4]
    assert load_index(folder).num_samples == 440


@pytest.mark.parametrize("name", ["mds_all", "mds_gz", "jsonl"])
def test_damaged_shards_give_no_index(cli: Run, copy: Copy, name: str) -> None:
    """An index that promises samples that do not decode is never published."""
    folder = copy(name)
    (folder / "index.json").unlink()
    file = next(iter(sorted(folder.glob("shard.00001.*"))))
    data = bytearray(file.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    file.write_bytes(data)
    result = cli("verify", folder, "--fix")
    assert result.exit_code == 1
    assert "shard.00001" in result.stdout
    assert not (folder / "index.json").exists()


def test_the_file_of_sums_is_used(cli: Run, written: Path) -> None:
    """A changed shard that decodes well is caught by its hash."""
    (written / "index.json").unlink()
    file = written / "shard.00001.mds"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    report = _fixed(cli("verify", written, "--fix", "--json"))
    assert [item["kind"] for item in report["problems"]] == ["checksum"]
    assert not (written / "index.json").exists()


def test_a_text_shard_without_its_meta_file_is_refused(cli: Run, copy: Copy) -> None:
    """Without offsets nobody knows where samples begin."""
    folder = copy("csv")
    (folder / "index.json").unlink()
    (folder / "shard.00001.csv.meta").unlink()
    result = cli("verify", folder, "--fix")
    assert result.exit_code == 1
    assert "no meta file" in " ".join(result.stdout.split())


def test_leftovers_of_a_reader_do_not_confuse(cli: Run, copy: Copy, golden: Path) -> None:
    """A decompressed shard beside its compressed file is not taken for a shard of its own."""
    folder = copy("mds_gz")
    (folder / "index.json").unlink()
    packed = folder / "shard.00002.mds.gz"
    (folder / "shard.00002.mds").write_bytes(gzip.decompress(packed.read_bytes()))
    assert _fixed(cli("verify", folder, "--fix", "--json"))["ok"]
    wanted = (golden / "mds_gz" / "index.json").read_bytes()
    assert (folder / "index.json").read_bytes() == wanted


@pytest.mark.parametrize("name", ["mds_zstd", "mds_snappy", "mds_br"])
def test_expansion_is_bounded(cli: Run, copy: Copy, name: str) -> None:
    """A shard that would expand beyond the limit is refused, and the option to raise it named."""
    folder = copy(name)
    (folder / "index.json").unlink()
    result = cli("verify", folder, "--fix", "--max-shard-bytes", "5kb")
    assert result.exit_code == 1
    assert not (folder / "index.json").exists()


@pytest.mark.parametrize("name", compressions())
def test_files_of_unknown_size_expand_within_the_limit(name: str) -> None:
    """What expands to exactly the limit comes whole; one byte more is refused."""
    codec = parse_compression(name)
    assert codec is not None
    data = bytes(range(256)) * 40
    packed = codec.compress([data])
    assert inflate(codec, packed, len(data), where="a") == data
    assert inflate(codec, packed, 1 << 30, where="a") == data
    with pytest.raises(DecompressionError):
        inflate(codec, packed, len(data) - 1, where="a")
    with pytest.raises(DecompressionError):
        inflate(codec, packed[: len(packed) // 2], 1 << 30, where="a")


def test_no_shards_no_index(cli: Run, tmp_path: Path) -> None:
    """A folder of other things is not made a data set; merge is named for parts."""
    (tmp_path / "notes.txt").write_text("x")
    result = cli("verify", tmp_path, "--fix")
    assert result.exit_code == 2
    assert "streaming-core merge" in result.stderr
    assert not (tmp_path / "index.json").exists()


def test_a_live_writer_keeps_fix_out(cli: Run, written: Path) -> None:
    """While somebody writes, nothing is rebuilt."""
    (written / "index.json").unlink()
    with LocalStore(written).lock():
        result = cli("verify", written, "--fix")
    assert result.exit_code == 2
    assert "error [output-busy]" in result.stderr


def test_an_unfinished_conversion_needs_force(
    cli: Run, tmp_path: Path, break_off: BreakOff
) -> None:
    """Without `--force` the samples are counted and nothing changes; with it they are kept."""
    folder = tmp_path / "data"
    safe = break_off(folder)
    refused = cli("verify", folder, "--fix")
    assert refused.exit_code == 2
    assert f"only its {safe} safe samples" in refused.stderr
    assert (folder / ".writing" / "settings.json").exists()
    report = _fixed(cli("verify", folder, "--fix", "--force", "--json"))
    assert report["fix"]["num_samples"] == report["num_decoded"] == safe
    assert load_index(folder).num_samples == safe
    assert not (folder / ".writing" / "settings.json").exists()


def test_force_drops_what_lies_beyond_a_missing_shard(
    cli: Run, tmp_path: Path, break_off: BreakOff
) -> None:
    """A conversion is cut at the first shard that is not whole, as resuming would cut it."""
    folder = tmp_path / "data"
    break_off(folder)
    first = json.loads((folder / ".writing" / "00000.json").read_text())["entry"]["samples"]
    (folder / "shard.00001.mds").unlink()
    report = _fixed(cli("verify", folder, "--fix", "--force", "--json"))
    assert report["fix"]["num_samples"] == first


def test_a_lost_index_below_an_append_can_be_rebuilt(
    cli: Run, written: Path, break_off: BreakOff
) -> None:
    """Old and new shards make the data set; the count of both is what the journal knows."""
    safe = break_off(written, append=True)
    (written / "index.json").unlink()
    refused = cli("verify", written, "--fix")
    assert f"only its {30 + safe} safe samples" in refused.stderr
    report = _fixed(cli("verify", written, "--fix", "--force", "--json"))
    assert report["fix"]["num_samples"] == 30 + safe


def test_people_read_what_was_done(cli: Run, written: Path) -> None:
    """The text says why, from how much, and where the old index is."""
    (written / "index.json").write_bytes(b"{")
    result = cli("verify", written, "--fix")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "the index was broken; rebuilt it from 3 shards and 30 samples" in text
    assert "index.json.bad" in text


def test_fix_is_for_folders(cli: Run) -> None:
    """A store that is no folder has no lock, so nothing is rebuilt there."""
    result = cli("verify", "memory://somewhere", "--fix")
    assert result.exit_code == 2
    assert "local folders only" in result.stderr
