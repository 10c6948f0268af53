"""Where a writer writes: folders, buckets, both, and what it does with what is there."""

from __future__ import annotations

import gc
import io
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streaming_core import MDSWriter, ShardTable, load_index, open_store
from streaming_core._read import SUMS, parse_sums
from streaming_core.errors import (
    OutputBusyError,
    OutputNotEmptyError,
    SchemaError,
    StoreError,
    WriterStateError,
)

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "int"}
SAMPLES = [{"id": i} for i in range(100)]


def _write(out: Any, **options: Any) -> MDSWriter:
    with MDSWriter(out=out, columns=COLUMNS, size_limit=400, **options) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    return writer


def test_nothing_but_the_data_set_is_left(tmp_path: Path) -> None:
    """Shards and index, as the reference leaves them; no journal, no lock, no temporary file."""
    _write(tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    shards = load_index(tmp_path / "out").num_shards
    assert names == ["index.json", *(f"shard.{i:05d}.mds" for i in range(shards))]


def test_a_folder_whose_files_were_moved_can_be_removed(tmp_path: Path) -> None:
    """Who merges parts by hand moves the shards, deletes the index, and removes the folder."""
    _write(tmp_path / "out")
    for path in (tmp_path / "out").glob("shard.*"):
        path.rename(tmp_path / path.name)
    (tmp_path / "out/index.json").unlink()
    (tmp_path / "out").rmdir()


def test_an_append_goes_on_with_the_sums_that_are_there(tmp_path: Path) -> None:
    """So that none is missing of a data set that has them; and makes none where there are none."""
    for name, checksums in (("with", True), ("without", False)):
        _write(tmp_path / name, checksums=checksums)
        _write(tmp_path / name, append=True)
        found = (tmp_path / name / SUMS).exists()
        assert found == checksums
    table = load_index(tmp_path / "with")
    assert set(parse_sums((tmp_path / "with" / SUMS).read_bytes())) == set(table.basenames("raw"))


def test_an_empty_conversion_is_a_data_set_of_no_samples(tmp_path: Path, read_all: Any) -> None:
    """Zero samples give an index of zero shards, byte for byte as the reference's."""
    with MDSWriter(out=tmp_path / "out", columns=COLUMNS):
        pass
    with MDSWriter(out=tmp_path / "none"):
        pass
    for name in ("out", "none"):
        assert (tmp_path / name / "index.json").read_bytes() == b'{"shards": [], "version": 2}'
    assert read_all(tmp_path / "out") == []


def test_a_first_sample_over_the_limit_leaves_an_empty_shard(tmp_path: Path, read_all: Any) -> None:
    """The reference writes it, so do we; later ones leave none."""
    samples = [{"data": b"x" * size} for size in (3000, 10, 3000, 3000)]
    with MDSWriter(out=tmp_path / "out", columns={"data": "bytes"}, size_limit=2000) as writer:
        for sample in samples:
            writer.write(sample)
    assert load_index(tmp_path / "out").samples.tolist() == [0, 1, 1, 1, 1]
    assert read_all(tmp_path / "out") == samples


@pytest.mark.parametrize("keep_local", [True, False])
def test_a_pair_writes_to_both_or_to_the_remote_alone(
    tmp_path: Path, files: Any, keep_local: bool
) -> None:
    """With keep_local both places hold the same; without it only the second does."""
    _write(tmp_path / "plain")
    _write((str(tmp_path / "local"), str(tmp_path / "remote")), keep_local=keep_local)
    assert files(tmp_path / "remote") == files(tmp_path / "plain")
    if keep_local:
        assert files(tmp_path / "local") == files(tmp_path / "plain")
    else:
        assert not (tmp_path / "local").exists()


def test_a_url_is_written_from_memory(tmp_path: Path, files: Any) -> None:
    """A remote output needs no folder, and holds what a folder would."""
    writer = _write("memory://output-url/deep/er")
    store = open_store("memory://output-url/deep/er")
    _write(tmp_path / "plain")
    assert {info.key: store.get(info.key) for info in store.list()} == files(tmp_path / "plain")
    assert writer.local is None


def test_a_url_with_keep_local_says_where_the_copy_is(tmp_path: Path, files: Any) -> None:
    """The local copy lies in a folder of its own that the writer names."""
    writer = _write("memory://output-kept", keep_local=True)
    assert writer.local is not None
    _write(tmp_path / "plain")
    assert files(writer.local) == files(tmp_path / "plain")
    shutil.rmtree(writer.local)


def test_file_urls_are_folders(tmp_path: Path) -> None:
    """A file:// URL and the path are the same place."""
    _write((tmp_path / "a b").as_uri())
    assert load_index(tmp_path / "a b").num_samples == 100


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten unless asked for; the message says what is there and what to do."""
    _write(tmp_path / "out")
    with pytest.raises(OutputNotEmptyError, match=r"finished data set; append=True.*exist_ok=True"):
        _write(tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.txt").write_text("a")
    with pytest.raises(OutputNotEmptyError, match=r"'a\.txt'; exist_ok=True"):
        _write(tmp_path / "other")
    assert issubclass(OutputNotEmptyError, FileExistsError)


def test_an_empty_folder_may_exist(tmp_path: Path) -> None:
    """Making the folder beforehand is no mistake."""
    (tmp_path / "out").mkdir()
    _write(tmp_path / "out")


def test_exist_ok_deletes_what_is_there(tmp_path: Path, files: Any) -> None:
    """Old shards, strangers and folders go, then the data set is written."""
    (tmp_path / "out/sub").mkdir(parents=True)
    (tmp_path / "out/sub/x").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").write_text("kept")
    (tmp_path / "out/link").symlink_to(tmp_path / "elsewhere")
    _write(tmp_path / "plain")
    _write(tmp_path / "out", exist_ok=True)
    assert files(tmp_path / "out") == files(tmp_path / "plain")
    assert not (tmp_path / "out/sub").exists()
    assert (tmp_path / "elsewhere/kept").read_text() == "kept"


def test_exist_ok_empties_a_bucket_folder_only() -> None:
    """What lies beside the output in the bucket stays."""
    open_store("memory://output-bucket").put("beside/x", [b"x"])
    open_store("memory://output-bucket").put("out/old", [b"old"])
    _write("memory://output-bucket/out", exist_ok=True)
    keys = [info.key for info in open_store("memory://output-bucket").list()]
    assert "out/old" not in keys
    assert "beside/x" in keys


@pytest.mark.parametrize("place", [".", "~"])
def test_exist_ok_spares_places_that_are_no_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A slip of the pen does not delete a home folder."""
    (tmp_path / "precious").write_text("here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(OutputNotEmptyError, match="folder of its own"):
        MDSWriter(out=place, columns=COLUMNS, exist_ok=True)
    assert (tmp_path / "precious").read_text() == "here"


def test_the_sums_are_what_xxhsum_checks(tmp_path: Path) -> None:
    """The format is that tool's own: hash, two spaces, name."""
    _write(tmp_path / "out", checksums=True)
    lines = (tmp_path / "out/checksums.xxh128").read_text().splitlines()
    assert all(len(line.split("  ")[0]) == 32 for line in lines)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("xxhsum") is None, reason="xxhsum is not installed")
def test_xxhsum_accepts_the_sums(tmp_path: Path) -> None:
    """The tool itself finds every file as it was written."""
    _write(tmp_path / "out", checksums=True)
    done = subprocess.run(
        [shutil.which("xxhsum") or "", "--check", "checksums.xxh128"],
        cwd=tmp_path / "out",
        check=True,
        capture_output=True,
    )
    assert b"FAILED" not in done.stdout


def test_parts_lie_side_by_side(tmp_path: Path) -> None:
    """Each process writes into a folder of its own, by number or by name."""
    _write(tmp_path, part=3)
    _write(tmp_path, part="val")
    assert load_index(tmp_path / "part-00003").num_samples == 100
    assert load_index(tmp_path / "val").num_samples == 100


@pytest.mark.parametrize("part", [-1, "../up", "/abs", ""])
def test_bad_parts_are_refused(tmp_path: Path, part: Any) -> None:
    """A part cannot leave the output."""
    with pytest.raises((SchemaError, StoreError, ValueError)):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, part=part)


def test_one_folder_has_one_writer(tmp_path: Path) -> None:
    """The second is refused at once, the first is not disturbed."""
    with MDSWriter(out=tmp_path / "out", columns=COLUMNS) as first:
        first.write(SAMPLES[0])
        with pytest.raises(OutputBusyError, match="out"):
            MDSWriter(out=tmp_path / "out", columns=COLUMNS, resume=True)
        first.write(SAMPLES[1])
    assert load_index(tmp_path / "out").num_samples == 2


def test_a_writer_that_could_not_open_leaves_the_folder_free(tmp_path: Path) -> None:
    """Refused settings do not lock anybody out."""
    for _ in range(2):
        with pytest.raises(SchemaError, match="unknown encoding"):
            MDSWriter(out=tmp_path / "out", columns={"a": "nonsense"})
    _write(tmp_path / "out")


def test_a_finished_writer_takes_no_more(tmp_path: Path) -> None:
    """Calls after the end say so; finishing twice is fine."""
    writer = _write(tmp_path / "out")
    writer.finish()
    with pytest.raises(WriterStateError, match="finished"):
        writer.write(SAMPLES[0])
    with pytest.raises(WriterStateError, match="finished"):
        writer.write_batch({"id": [1]})


def test_without_a_with_block_finish_ends_it(tmp_path: Path) -> None:
    """The reference's other way to use a writer."""
    writer = MDSWriter(out=tmp_path / "out", columns=COLUMNS)
    for sample in SAMPLES:
        writer.write(sample)
    writer.finish()
    assert load_index(tmp_path / "out").num_samples == 100


def test_other_methods_of_the_reference(tmp_path: Path) -> None:
    """encode_sample gives a record, get_config the settings of a shard."""
    with MDSWriter(out=tmp_path / "out", columns={"a": "int", "b": "str"}) as writer:
        assert writer.encode_sample({"b": "é", "a": 0}).hex() == "02000000" + "00" * 8 + "c3a9"
        assert writer.get_config()["column_names"] == ["a", "b"]
        assert writer.get_config()["size_limit"] == 1 << 26


def test_jobs_that_were_cancelled_publish_nothing(tmp_path: Path) -> None:
    """After cancel_future_jobs no index appears, and the folder is free again."""
    writer = MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limit=300)
    for sample in SAMPLES:
        writer.write(sample)
    writer.cancel_future_jobs()
    with pytest.raises(WriterStateError, match="stopped"):
        writer.finish()
    with pytest.raises(WriterStateError, match="stopped"):
        writer.write(SAMPLES[0])
    assert not (tmp_path / "out/index.json").exists()
    _write(tmp_path / "out", exist_ok=True)


def test_unknown_arguments_are_refused(tmp_path: Path) -> None:
    """A misspelt option is not ignored."""
    with pytest.raises(TypeError, match="size_limits"):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limits=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"compression": "zip"}, "zip"),
        ({"compression": "zstd:99"}, "zstd:99"),
        ({"hashes": ["crc"]}, "crc"),
        ({"max_workers": 0}, "max_workers"),
        ({"size_limit": -1}, "size_limit"),
        ({"columns": {}}, "no columns"),
        ({"columns": {"a": "ndarray:bool"}}, "bool"),
        ({"columns": {"a": "ndarray:uint8:0"}}, "from 1 on"),
        ({"columns": {"a": "int:3"}}, "takes no arguments"),
        ({"columns": {"a": 3}}, "text"),
    ],
)
def test_settings_are_checked_before_anything_is_touched(
    tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    """Errors name the setting; the folder is left free and empty."""
    with pytest.raises(SchemaError, match=told):
        MDSWriter(**{"out": tmp_path / "out", "columns": COLUMNS, **options})
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_progress_line_counts_samples_and_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples, bytes, shards and rates, on standard error, once more at the end."""
    _write(tmp_path / "out", progress_bar=True)
    last = capsys.readouterr().err.split("\r")[-1]
    assert "100 samples" in last
    assert "samples/s" in last
    assert "800 B" in last
    _write(tmp_path / "quiet")
    assert capsys.readouterr().err == ""


def test_an_abandoned_writer_gives_the_folder_back(tmp_path: Path) -> None:
    """Who drops a writer without finishing it can begin again, without a new process."""
    writer = MDSWriter(out=tmp_path / "out", columns=COLUMNS)
    writer.write(SAMPLES[0])
    del writer
    gc.collect()
    _write(tmp_path / "out", resume=True)


def test_a_terminal_that_goes_away_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken pipe on standard error neither loses the data set nor keeps the folder locked."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    _write(tmp_path / "out", progress_bar=True)
    _write(tmp_path / "out", exist_ok=True)


def test_appending_to_many_shards_looks_at_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next number is not searched for again with each new shard."""
    _write(tmp_path / "out")
    calls: list[str] = []
    real = ShardTable.basenames

    def counted(table: ShardTable, role: Any) -> Any:
        calls.append(role)
        return real(table, role)

    monkeypatch.setattr(ShardTable, "basenames", counted)
    with MDSWriter(out=tmp_path / "out", size_limit=300, append=True) as writer:
        for sample in SAMPLES * 3:
            writer.write(sample)
    assert len(calls) < 12


@pytest.mark.parametrize("columns", [{"id": "imt"}, {}, ["id"]])
def test_a_slip_in_the_columns_deletes_nothing(tmp_path: Path, files: Any, columns: Any) -> None:
    """What cannot be written is refused before exist_ok empties the folder."""
    _write(tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(SchemaError):
        MDSWriter(out=tmp_path / "out", columns=columns, exist_ok=True)
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("columns", [{"id": "int"}, {"id": "int", "text": "str"}, None])
def test_threads_may_write_side_by_side(tmp_path: Path, read_all: Any, columns: Any) -> None:
    """Every sample of every thread is there once, and no thread waits for ever."""

    def feed(writer: MDSWriter, start: int) -> None:
        for number in range(start, start + 400):
            writer.write({"id": number, "text": str(number)})

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with MDSWriter(out=tmp_path / "out", columns=columns, size_limit=2000) as writer:
            threads = [threading.Thread(target=feed, args=(writer, 400 * i)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(sample["id"] for sample in read_all(tmp_path / "out")) == list(range(1600))


def test_a_bucket_has_one_writer_too(tmp_path: Path) -> None:
    """A second writer finds the first one's journal, though no lock can be had there."""
    with MDSWriter(out="memory://output-one", columns=COLUMNS) as first:
        first.write(SAMPLES[0])
        with pytest.raises(OutputNotEmptyError, match="unfinished"):
            MDSWriter(out="memory://output-one", columns=COLUMNS)
    assert load_index("memory://output-one").num_samples == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given_limit", "limit"),
    [(None, None), (0, None), ("0", None), (1000.0, 1000), ("1kb", 1024), ("1.5MB", 1572864)],
)
def test_limits_as_people_write_them(tmp_path: Path, given_limit: Any, limit: int | None) -> None:
    """Numbers, texts, and none."""
    with MDSWriter(out=tmp_path, columns=COLUMNS, size_limit=given_limit) as writer:
        assert writer.get_config()["size_limit"] == limit


@pytest.mark.parametrize("limit", [-1, 2**32, "4gb", "10 apples", "-5", ""])
def test_limits_out_of_range_are_refused(tmp_path: Path, limit: int | str) -> None:
    """A limit that 32-bit offsets cannot hold, or that is no size, is a ValueError."""
    with pytest.raises(ValueError, match="size_limit: expected"):
        MDSWriter(out=tmp_path, columns=COLUMNS, size_limit=limit)


@pytest.mark.parametrize(
    "options",
    [
        {"size_limit": 1.5},
        {"max_workers": "2"},
        {"part": 1.5},
        {"part": b"x"},
        {"part": ".writing"},
        {"part": "index.json"},
    ],
)
def test_options_of_the_wrong_kind_are_named(tmp_path: Path, options: dict[str, Any]) -> None:
    """The error names the option and what came."""
    with pytest.raises(SchemaError, match=next(iter(options))):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, **options)
    _write(tmp_path / "out", part=np.int64(3))
    assert (tmp_path / "out/part-00003/index.json").exists()
