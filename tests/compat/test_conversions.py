"""Conversions that an earlier release began, and datasets that it finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.cases import Case, cases
from tests.compat.command import run_command
from tests.compat.jobs import convert, opened
from tests.compat.rows import digest, file_digests, samples

import streaming_core
from streaming_core import LocalDataset, load_index, merge_index
from streaming_core.errors import OutputNotEmptyError, ResumeError

if TYPE_CHECKING:
    from pathlib import Path

_SUMS = "checksums.xxh128"


def _output(case: Case, root: Path) -> Path:
    """Return the folder that holds the dataset."""
    part = case.settings["settings"]["options"].get("part")
    if part is None or case.name == "parts":
        return root
    return root / (part if isinstance(part, str) else f"part-{part:05d}")


def _assert_converted(case: Case, root: Path, whole: Path) -> None:
    """Assert that files have the bytes of an uninterrupted conversion, now or back then.

    Another version of a compression library may compress otherwise. Then shards of before and
    shards of now stand side by side, and the index and the sums describe just these.
    """
    found, now = file_digests(root), file_digests(whole)
    then = case.settings["files"]
    assert found.keys() == now.keys() == then.keys()
    differing = {name for name in found if found[name] not in {now[name], then[name]}}
    if now == then:
        assert not differing
    assert all(name.endswith(("index.json", _SUMS)) for name in differing)


def _settings(case: Case) -> dict[str, Any]:
    """Return what converts, and asks for sums if they were made back then, when all got them."""
    settings = case.settings["settings"]
    checksums = any(name.endswith(_SUMS) for name in case.settings["files"])
    return {**settings, "options": {**settings["options"], "checksums": checksums}}


def _convert_parts(case: Case, root: Path) -> None:
    settings = _settings(case)
    for part in (0, 1):
        options = {**settings["options"], "part": part}
        convert({**settings, "options": options, "samples": [part * 80, part * 80 + 80]}, root)


@cases("conversions")
def test_a_conversion_is_resumed(case: Case, tmp_path: Path) -> None:
    """The result has the bytes of a conversion that was never interrupted."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    case.fixture.unpack(out, case.name)
    settings = _settings(case)
    if case.name == "parts":
        # The first part is finished: resuming it would be another conversion.
        convert({**settings, "samples": [80, 160]}, out)
        merge_index(out)
        _convert_parts(case, whole)
        merge_index(whole)
    else:
        if "base" in settings:
            options = {**settings["options"], "append": False, "resume": False}
            convert({**settings, "samples": settings["base"], "options": options}, whole)
        convert(settings, out)
        convert(settings, whole)
    _assert_converted(case, out, whole)
    folder = _output(case, out)
    run_command("verify", str(folder))
    first = settings.get("base", settings["samples"])[0]
    last = settings["samples"][1]
    if case.name == "parts":
        first, last = 0, 160
    assert _rows(folder, tmp_path) == digest(samples(first, last))


def _rows(folder: Path, tmp_path: Path) -> str:
    dataset = opened({"remote": str(folder), "local": str(tmp_path / "cache"), "batch_size": 8})
    return digest(dataset[at] for at in range(dataset.size))


@cases("conversions", lambda name: name not in {"parts", "mds-before-first-shard"})
def test_a_conversion_keeps_what_was_safe(case: Case, tmp_path: Path) -> None:
    """Samples of shards that were durable need not be given again."""
    case.fixture.unpack(tmp_path, case.name)
    settings = case.settings["settings"]
    writer_class = getattr(streaming_core, settings["writer"])
    writer = writer_class(out=tmp_path, columns=settings["columns"], **settings["options"])
    assert 0 < writer.num_safe_samples <= settings["stop"] - settings["samples"][0]
    writer.cancel_future_jobs()


@cases("conversions", lambda name: name in {"mds", "json-zstd", "mds-zstd-hashes"})
def test_other_settings_are_refused(case: Case, tmp_path: Path) -> None:
    """A conversion is not resumed with another size limit, and not overwritten by a new one."""
    case.fixture.unpack(tmp_path, case.name)
    before = file_digests(tmp_path)
    settings = case.settings["settings"]
    options = {**settings["options"], "size_limit": 5000}
    with pytest.raises(ResumeError, match="size_limit"):
        convert({**settings, "options": options}, tmp_path)
    with pytest.raises(OutputNotEmptyError, match="resume"):
        convert({**settings, "options": {**settings["options"], "resume": False}}, tmp_path)
    assert file_digests(tmp_path) == before


@cases("conversions", lambda name: name == "parts")
def test_an_unfinished_part_is_not_merged(case: Case, tmp_path: Path) -> None:
    """The error names the part that is to be finished first."""
    case.fixture.unpack(tmp_path, case.name)
    with pytest.raises(streaming_core.StreamingError, match="part-00001"):
        merge_index(tmp_path)


@cases("datasets")
def test_a_finished_dataset_is_read(case: Case, tmp_path: Path) -> None:
    """All values are those that were written, and `verify` finds nothing wrong."""
    folder = tmp_path / "data"
    case.fixture.unpack(folder, case.name)
    run_command("verify", str(folder))
    assert load_index(folder).num_samples == case.settings["num_samples"]
    assert _rows(folder, tmp_path) == case.settings["rows"]
    if case.settings["in_place"]:
        dataset = LocalDataset(folder)
        assert digest(dataset[at] for at in range(len(dataset))) == case.settings["rows"]


@cases("datasets", lambda name: name in {"mds-raw", "mds-zstd", "json", "csv", "tsv"})
def test_a_finished_dataset_is_appended_to(case: Case, tmp_path: Path) -> None:
    """Old shards stay as they are, and old and new samples are read together."""
    folder = tmp_path / "data"
    case.fixture.unpack(folder, case.name)
    before = file_digests(folder)
    given = case.settings["append"]
    options = {**given["options"], "append": True}
    count = given["num_samples"]
    settings = {**given, "options": options, "samples": [count, count + 30]}
    convert(settings, folder)
    after = file_digests(folder)
    changed = {name for name in before if after[name] != before[name]}
    assert changed <= {"index.json", "checksums.xxh128"}
    assert _rows(folder, tmp_path) == digest(samples(0, count + 30))
    run_command("verify", str(folder))
