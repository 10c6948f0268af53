"""A conversion that stopped goes on where it was safe, and ends as if it had never stopped."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import JSONWriter, MDSWriter, load_index, open_store
from streaming_core.errors import (
    OutputNotEmptyError,
    ResumeError,
    SampleError,
    SchemaError,
    StreamingError,
    WriterStateError,
)
from streaming_core.testing import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "int", "text": "str"}
SAMPLES = [{"id": i, "text": f"text {i} " * (i % 7)} for i in range(60)]


class _StopError(Exception):
    """What a user's code may raise."""


def _write(out: Any, upto: int | None = None, **options: Any) -> int:
    """Write the samples, or stop after `upto`; return how many were safe at the start."""
    with MDSWriter(out=out, columns=COLUMNS, size_limit=900, **options) as writer:
        safe = writer.num_safe_samples
        for i, sample in enumerate(islice(SAMPLES, safe, None), safe):
            if i == upto:
                raise _StopError
            writer.write(sample)
    return safe


@pytest.mark.parametrize("compression", [None, "zstd:1"])
def test_stopped_at_every_sample_and_resumed_gives_the_uninterrupted_result(
    tmp_path: Path, files: Any, compression: str | None
) -> None:
    """After an exception at any sample, no index is there, and resuming gives the same files."""
    _write(tmp_path / "whole", compression=compression)
    wanted = files(tmp_path / "whole")
    for upto in range(0, len(SAMPLES), 1 if compression is None else 7):
        out = tmp_path / f"stopped-{upto}"
        with pytest.raises(_StopError):
            _write(out, upto, compression=compression)
        assert not (out / "index.json").exists()
        safe = _write(out, resume=True, compression=compression)
        assert safe <= upto
        assert files(out) == wanted


def test_a_resumed_conversion_of_lines_lists_its_sums_in_the_same_order(
    tmp_path: Path, files: Any
) -> None:
    """Data files come before the files of their offsets, in notes and without them."""

    def write(out: Path, upto: int | None = None, **options: Any) -> None:
        with JSONWriter(
            out=out,
            columns={"id": "int", "text": "str"},
            size_limit=900,
            compression="zstd:1",
            **options,
        ) as writer:
            for sample in SAMPLES[writer.num_safe_samples : upto]:
                writer.write(sample)
            if upto is not None:
                raise _StopError

    write(tmp_path / "whole")
    with pytest.raises(_StopError):
        write(tmp_path / "out", 40)
    write(tmp_path / "out", resume=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_resuming_many_times_in_a_row_never_goes_back(tmp_path: Path, files: Any) -> None:
    """Each run begins where shards of the last one are safe, until the end is reached."""
    _write(tmp_path / "whole")
    safe = []
    for upto in range(10, len(SAMPLES), 10):
        with pytest.raises(_StopError):
            _write(tmp_path / "out", upto, resume=True)
        with MDSWriter(out=tmp_path / "probe", columns=COLUMNS):
            pass
        safe.append(len(list((tmp_path / "out").glob("shard.*"))))
        (tmp_path / "probe/index.json").unlink()
    assert safe == sorted(safe)
    assert safe[-1] > safe[0]
    _write(tmp_path / "out", resume=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_resume_of_nothing_starts_anew(tmp_path: Path, files: Any) -> None:
    """The same script with resume=True serves the first run too."""
    assert _write(tmp_path / "a", resume=True) == 0
    _write(tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_resume_of_a_finished_conversion_changes_nothing(tmp_path: Path, files: Any) -> None:
    """All samples are safe, none is taken, and the files stay."""
    _write(tmp_path / "out")
    before = files(tmp_path / "out")
    assert _write(tmp_path / "out", resume=True) == len(SAMPLES)
    assert files(tmp_path / "out") == before
    writer = MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limit=900, resume=True)
    with pytest.raises(WriterStateError, match="finished, with 60 samples"):
        writer.write(SAMPLES[0])
    writer.finish()
    assert files(tmp_path / "out") == before


def test_resume_takes_the_columns_from_before(tmp_path: Path, files: Any) -> None:
    """Neither columns nor inference are needed to go on."""
    _write(tmp_path / "whole")
    with pytest.raises(_StopError):
        _write(tmp_path / "out", 40)
    with MDSWriter(out=tmp_path / "out", size_limit=900, resume=True) as writer:
        assert writer.num_safe_samples > 0
        for sample in SAMPLES[writer.num_safe_samples :]:
            writer.write(sample)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"columns": {"id": "int64", "text": "str"}}, "column_encodings"),
        ({"columns": {"id": "int"}}, "column_names"),
        ({"size_limit": 901}, "size_limit: 900 then, 901 now"),
        ({"compression": "zstd"}, "compression: None then, 'zstd' now"),
        ({"hashes": ["md5"]}, "hashes"),
    ],
)
def test_other_settings_are_refused_by_name(
    tmp_path: Path, files: Any, change: dict[str, Any], told: str
) -> None:
    """A resume that would give other files says what differs and touches nothing."""
    with pytest.raises(_StopError):
        _write(tmp_path / "out", 40)
    before = files(tmp_path / "out")
    with pytest.raises(ResumeError, match=told):
        MDSWriter(
            **{"out": tmp_path / "out", "columns": COLUMNS, "size_limit": 900, **change},
            resume=True,
        )
    assert files(tmp_path / "out") == before
    _write(tmp_path / "out", resume=True)


def test_another_data_set_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    """resume=True on a folder with other columns is an error, not zero work."""
    with MDSWriter(out=tmp_path / "out", columns={"x": "int"}) as writer:
        writer.write({"x": 1})
    with pytest.raises(ResumeError, match="column_names"):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, resume=True)


def test_an_unfinished_conversion_is_not_overwritten_silently(tmp_path: Path, files: Any) -> None:
    """Without resume the writer refuses and names both ways on."""
    with pytest.raises(_StopError):
        _write(tmp_path / "out", 40)
    with pytest.raises(OutputNotEmptyError, match=r"resume=True.*exist_ok=True"):
        _write(tmp_path / "out")
    _write(tmp_path / "out", exist_ok=True)
    _write(tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_shards_after_a_damaged_one_are_written_again(tmp_path: Path, files: Any) -> None:
    """A missing or shortened shard ends the safe run there."""
    _write(tmp_path / "whole")
    with pytest.raises(_StopError):
        _write(tmp_path / "out", 59)
    shards = sorted((tmp_path / "out").glob("shard.*"))
    shards[2].write_bytes(shards[2].read_bytes()[:-1])
    per_shard = load_index(tmp_path / "whole").samples[:2].sum()
    assert _write(tmp_path / "out", resume=True) == per_shard
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_broken_note_is_named(tmp_path: Path) -> None:
    """A journal that cannot be read is an error that says which note."""
    with pytest.raises(_StopError):
        _write(tmp_path / "out", 40)
    (tmp_path / "out/.writing/settings.json").write_text("{")
    with pytest.raises(ResumeError, match=r"settings\.json"):
        _write(tmp_path / "out", resume=True)


def test_foreign_files_are_not_mixed_in(tmp_path: Path) -> None:
    """resume=True in a folder of other things refuses and removes nothing."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(OutputNotEmptyError, match=r"notes\.txt"):
        _write(tmp_path / "out", resume=True)
    assert (tmp_path / "out/notes.txt").read_text() == "mine"


def test_a_data_set_that_lost_its_index_is_not_deleted(tmp_path: Path, files: Any) -> None:
    """Shards without index and journal may be somebody's only copy."""
    _write(tmp_path / "out")
    (tmp_path / "out/index.json").unlink()
    before = files(tmp_path / "out")
    with pytest.raises(OutputNotEmptyError, match="verify --fix"):
        _write(tmp_path / "out", resume=True)
    assert files(tmp_path / "out") == before


def test_an_empty_folder_does_not_empty_the_bucket_beside_it(tmp_path: Path) -> None:
    """Resuming a pair on a machine without the folder keeps what the URL holds."""
    with pytest.raises(_StopError):
        _write("memory://resume-pair", 40)
    store = open_store("memory://resume-pair")
    before = [info.key for info in store.list()]
    with pytest.raises(OutputNotEmptyError, match=r"memory://resume-pair.*unfinished"):
        _write((str(tmp_path / "new"), "memory://resume-pair"), resume=True, keep_local=True)
    assert [info.key for info in store.list()] == before
    assert _write("memory://resume-pair", resume=True) > 0


def test_a_bucket_is_resumed_like_a_folder() -> None:
    """The journal works where nothing can be appended to or renamed."""
    MemoryStore("resume-whole"), MemoryStore("resume-out")
    _write("memory://resume-whole/d")
    with pytest.raises(_StopError):
        _write("memory://resume-out/d", 50)
    assert _write("memory://resume-out/d", resume=True) > 0
    stores = [open_store(f"memory://resume-{name}/d") for name in ("whole", "out")]
    found = [{info.key: store.get(info.key) for info in store.list()} for store in stores]
    assert found[0] == found[1]
    assert "index.json" in found[0]


def test_safe_samples_grow_while_writing(tmp_path: Path) -> None:
    """The count follows the shards that are durable, and ends at all of them."""
    with MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limit=900, max_workers=1) as writer:
        assert writer.num_safe_samples == 0
        for sample in SAMPLES:
            writer.write(sample)
    assert writer.num_safe_samples == len(SAMPLES)


def test_a_bad_sample_leaves_no_trace_and_the_writer_goes_on(tmp_path: Path, read_all: Any) -> None:
    """Who catches the error of a sample loses that sample only."""
    with MDSWriter(out=tmp_path / "out", columns=COLUMNS) as writer:
        writer.write(SAMPLES[0])
        with pytest.raises(SampleError):
            writer.write({"id": "no number", "text": "x"})
        with pytest.raises(SampleError):
            writer.write_batch({"id": [1, 2, None], "text": ["a", "b", "c"]})
        writer.write(SAMPLES[1])
    assert read_all(tmp_path / "out") == SAMPLES[:2]


def test_an_exception_publishes_no_index_even_for_the_text_formats(tmp_path: Path) -> None:
    """What is half done does not look finished."""

    def stop() -> None:
        with JSONWriter(out=tmp_path / "out", columns={"a": "int"}) as writer:
            writer.write({"a": 1})
            raise _StopError

    with pytest.raises(_StopError):
        stop()
    assert not (tmp_path / "out/index.json").exists()


def test_contradicting_modes_are_refused(tmp_path: Path) -> None:
    """Deleting everything and going on with it do not go together."""
    with pytest.raises(SchemaError, match="exist_ok"):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, exist_ok=True, resume=True)
    with pytest.raises(SchemaError, match="exist_ok"):
        MDSWriter(out=tmp_path / "out", columns=COLUMNS, exist_ok=True, append=True)


# --- appending ------------------------------------------------------------------------------------


def _append(
    out: Path, samples: list[dict[str, Any]], upto: int | None = None, **options: Any
) -> int:
    with MDSWriter(out=out, size_limit=900, append=True, **options) as writer:
        safe = writer.num_safe_samples
        for i, sample in enumerate(samples[safe:], safe):
            if i == upto:
                raise _StopError
            writer.write(sample)
    return safe


def test_append_adds_shards_and_keeps_the_old_ones(
    tmp_path: Path, files: Any, read_all: Any
) -> None:
    """Old shards keep their bytes, the new index names both, and so do the sums."""
    _write(tmp_path / "out")
    before = files(tmp_path / "out")
    assert _append(tmp_path / "out", SAMPLES[:50]) == 0
    after = files(tmp_path / "out")
    assert all(after[name] == before[name] for name in before if name.startswith("shard."))
    assert read_all(tmp_path / "out") == [*SAMPLES, *SAMPLES[:50]]
    entries = json.loads(after["index.json"])["shards"]
    numbers = [int(entry["raw_data"]["basename"][6:11]) for entry in entries]
    assert numbers == list(range(len(entries)))


def test_append_to_nothing_writes_a_data_set(tmp_path: Path, files: Any) -> None:
    """A job that appends daily needs no special first day."""
    with MDSWriter(out=tmp_path / "out", columns=COLUMNS, size_limit=900, append=True) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    _write(tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize("upto", [0, 3, 20, 49])
def test_a_stopped_append_leaves_the_data_set_valid_and_is_resumed(
    tmp_path: Path, files: Any, read_all: Any, upto: int
) -> None:
    """The old index stays until the new one replaces it; resuming gives the same as no stop."""
    _write(tmp_path / "out")
    old = files(tmp_path / "out")
    with pytest.raises(_StopError):
        _append(tmp_path / "out", SAMPLES[:50], upto)
    assert files(tmp_path / "out")["index.json"] == old["index.json"]
    assert read_all(tmp_path / "out") == SAMPLES
    assert _append(tmp_path / "out", SAMPLES[:50], resume=True) <= upto
    _write(tmp_path / "whole")
    _append(tmp_path / "whole", SAMPLES[:50])
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_an_abandoned_append_is_dropped_by_the_next(tmp_path: Path, files: Any) -> None:
    """append=True without resume=True begins the append anew, from the published data set."""
    _write(tmp_path / "out")
    with pytest.raises(_StopError):
        _append(tmp_path / "out", SAMPLES[:50], 40)
    _append(tmp_path / "out", SAMPLES[20:50])
    _write(tmp_path / "whole")
    _append(tmp_path / "whole", SAMPLES[20:50])
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_an_unfinished_append_is_not_resumed_as_something_else(tmp_path: Path) -> None:
    """resume=True alone would forget that there is a data set to add to."""
    _write(tmp_path / "out")
    with pytest.raises(_StopError):
        _append(tmp_path / "out", SAMPLES[:50], 40)
    with pytest.raises(ResumeError, match="append=True, resume=True"):
        _write(tmp_path / "out", resume=True)


@pytest.mark.parametrize("resume", [True, False])
def test_an_append_to_what_has_changed_since_is_not_called_finished(
    tmp_path: Path, files: Any, resume: bool
) -> None:
    """Another index in the meantime does not make the append's samples safe."""
    _write(tmp_path / "out")
    with pytest.raises(_StopError):
        _append(tmp_path / "out", SAMPLES[:50], 40)
    index = tmp_path / "out/index.json"
    document = json.loads(index.read_text())
    index.write_text(json.dumps({**document, "shards": document["shards"][:-1]}))
    before = files(tmp_path / "out")
    with pytest.raises(ResumeError, match="changed since the append began"):
        _append(tmp_path / "out", SAMPLES[:50], resume=resume)
    assert files(tmp_path / "out") == before


def test_append_of_other_columns_is_refused(tmp_path: Path) -> None:
    """One data set has one set of columns."""
    _write(tmp_path / "out")
    with pytest.raises(ResumeError, match="column_names"):
        MDSWriter(out=tmp_path / "out", columns={"other": "int"}, append=True)


def test_append_twice_equals_append_of_both(tmp_path: Path, read_all: Any) -> None:
    """The order of samples is that of the calls."""
    _write(tmp_path / "out")
    _append(tmp_path / "out", SAMPLES[:10])
    _append(tmp_path / "out", SAMPLES[10:30])
    assert read_all(tmp_path / "out") == [*SAMPLES, *SAMPLES[:30]]


def test_errors_of_this_page_are_of_one_family() -> None:
    """A script can catch them together."""
    assert issubclass(ResumeError, StreamingError)
    assert issubclass(OutputNotEmptyError, FileExistsError)
