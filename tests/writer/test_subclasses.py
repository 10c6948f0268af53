"""Subclasses of writers own their attribute names, and may override what writers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import JSONWriter, LocalDataset, MDSWriter
from streaming_core.errors import SettingError

if TYPE_CHECKING:
    from pathlib import Path

_FREE = [
    *("_lock", "_options", "_output", "_progress", "_rows", "_run", "_open", "_folders", "columns"),
    *("column_names", "column_sizes", "num_safe_samples", "state", "tokenizer", "stats", "kind"),
]


class _Before(MDSWriter):
    def __init__(self, own: dict[str, Any], **arguments: Any) -> None:
        for name, value in own.items():
            setattr(self, name, value)
        super().__init__(**arguments)


class _After(MDSWriter):
    def __init__(self, own: dict[str, Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        for name, value in own.items():
            setattr(self, name, value)


@pytest.mark.parametrize("kind", [_Before, _After])
def test_any_attribute_may_be_set(kind: Any, tmp_path: Path) -> None:
    """And is what was set, while samples are written as without it."""
    own = {name: f"own {name}" for name in _FREE}
    with kind(own, out=tmp_path / "new", columns={"id": "int"}, size_limit="1kb") as out:
        for number in range(300):
            out.write({"id": number})
        assert {name: getattr(out, name) for name in _FREE} == own
        assert "safe_samples=" in repr(out)
    assert [sample["id"] for sample in LocalDataset(tmp_path / "new")] == list(range(300))


@pytest.mark.parametrize(
    ("name", "given", "other"),
    [
        ("compression", "zstd:3", "zstd:4"),
        ("hashes", ["sha1"], ["md5"]),
        ("size_limit", "1kb", 2048),
        ("keep_local", True, False),
    ],
)
def test_a_setting_takes_the_value_it_has(
    tmp_path: Path, name: str, given: Any, other: Any
) -> None:
    """As it was given, and as it reads; another is refused with advice."""
    settings: dict[str, Any] = {"out": tmp_path / "new", "columns": {"id": "int"}, name: given}
    with MDSWriter(**settings) as out:
        setattr(out, name, given)
        setattr(out, name, getattr(out, name))
        with pytest.raises(SettingError, match=f"give {name} when the MDSWriter is made"):
            setattr(out, name, other)


@pytest.mark.parametrize("columns", [None, {"id": "int"}])
def test_an_own_write_and_finish_are_called(tmp_path: Path, columns: dict[str, str] | None) -> None:
    """Each sample once, whether columns are given or inferred; finish at the end of the block."""

    class Own(JSONWriter):
        seen = 0

        def write(self, sample: Any) -> None:
            self.seen += 1
            super().write({"id": sample["id"] * 2})

        def finish(self) -> None:
            super().write({"id": -1})
            super().finish()

    with Own(out=tmp_path / "new", columns=columns) as out:
        for number in range(50):
            out.write({"id": number})
    ids = [sample["id"] for sample in LocalDataset(tmp_path / "new")]
    assert ids == [*range(0, 100, 2), -1]
    assert out.seen == 50
