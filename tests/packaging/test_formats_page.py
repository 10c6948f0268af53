"""The page of formats has every format, option and end of a name that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_core._virtual import kind_names
from streaming_core._virtual._hub import HUB_OPTIONS
from streaming_core._virtual._kinds import _class
from streaming_core._virtual._kinds._inflate import _ENDINGS
from streaming_core._virtual._tables import TABLE_OPTIONS
from streaming_reader._reading import HUB

PAGE = (Path(__file__).parents[2] / "docs/reference/formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", kind_names())
def test_a_format_is_on_the_page(name: str) -> None:
    """With all that it takes, and what tells it."""
    kind = _class(name)
    assert f"| `{name}` |" in PAGE
    for option in kind.options:
        assert f"| `{option}` |" in PAGE, option
    for suffix in kind.suffixes:
        plain = next((end for end in _ENDINGS if suffix.endswith(end)), "")
        whole = suffix if plain in {"", ".gz"} and name == "webdataset" else None
        assert f"`{whole or suffix.removesuffix(plain)}`" in PAGE, suffix


@pytest.mark.parametrize("ending", _ENDINGS)
def test_a_compression_is_on_the_page(ending: str) -> None:
    """Those that are refused, too."""
    assert f"`{ending}`" in PAGE


@pytest.mark.parametrize(("name", "options"), [*TABLE_OPTIONS.items(), (HUB, HUB_OPTIONS)])
def test_a_table_is_on_the_page(name: str, options: tuple[str, ...]) -> None:
    """With all that it takes."""
    assert f'format="{name}"' in PAGE
    for option in options:
        assert f"| `{option}` |" in PAGE, option
