"""Indexes, decoded views, and checkpoints of chunks of litData.

Reading them is to be removed; then this file and its fixtures go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.compat.cases import cases
from tests.compat.reading import read_again

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.compat.cases import Case

pytestmark = pytest.mark.slow


@cases("litdata")
def test_chunks_are_read_again(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    """With the index beside them, and with the one in the cache."""
    read_again(case, tmp_path, monkeypatch, caplog, record_property)
