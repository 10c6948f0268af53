"""The public interface: a new, changed, or vanished name is recorded on purpose."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path

import pytest
from tests.packaging.public_api import MODULES, public_api

import streaming_core

RECORDED = Path(__file__).with_name("public_api.txt")


def test_names_and_signatures_are_the_recorded_ones() -> None:
    """Every public name, member, and signature is as recorded."""
    recorded, now = RECORDED.read_text(), public_api()
    changes = difflib.unified_diff(
        recorded.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=1
    )
    assert recorded == now, "\n".join(
        [
            "The public interface changed. If that is meant, say so in CHANGELOG.md and run",
            "python tests/packaging/public_api.py > tests/packaging/public_api.txt",
            *changes,
        ]
    )


@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_what_it_lists(module: str) -> None:
    """Each name in `__all__` can be had."""
    loaded = importlib.import_module(module)
    assert not [name for name in loaded.__all__ if not hasattr(loaded, name)]


@pytest.mark.parametrize("name", streaming_core.__all__)
def test_the_facade_hands_out_the_same_objects_each_time(name: str) -> None:
    """A name loaded late is the object that its home module holds, and stays it."""
    first = getattr(streaming_core, name)
    home = getattr(first, "__module__", None)
    assert getattr(streaming_core, name) is first
    if isinstance(home, str):
        assert getattr(importlib.import_module(home), name) is first
