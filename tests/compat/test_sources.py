"""Indexes, decoded views, and checkpoints of data that was not converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.compat.cases import Case, cases
from tests.compat.jobs import opened
from tests.compat.reading import read_again

from streaming_core.errors import SourceChangedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


@cases("sources")
def test_a_source_is_read_again(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    """With the index beside it, with the one in the cache, and from a folder that was copied."""
    read_again(case, tmp_path, monkeypatch, caplog, record_property)


@cases("sources", lambda name: name in {"parquet", "jsonl-gz"})
def test_an_index_beside_other_files_is_refused(case: Case, tmp_path: Path) -> None:
    """Files that were copied without their times may be others; the error names one."""
    case.fixture.unpack(tmp_path, "bucket", keep_times=False)
    stream = {**case.settings["ways"]["beside"][0]["stream"], "local": str(tmp_path / "local")}
    stream["remote"] = f"{tmp_path}/{stream['remote']}"
    with pytest.raises(SourceChangedError, match=r"/0\.\S+: the file changed after it was indexed"):
        list(opened({"streams": [stream], "batch_size": 4}))
