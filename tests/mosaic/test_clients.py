"""Scripts that were written for mosaicml-streaming run, with only the package's name replaced.

What they print was recorded with mosaicml-streaming itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests.mosaic.record import CLIENTS, RECORDED, printed
from tests.servers.processes import needs

pytestmark = pytest.mark.process

_ROOT: Final = Path(__file__).parents[2]
_COMPOSER: Final = _ROOT / ".servers" / "composer" / "bin" / "python"
_EPOCHS: Final = 4
"""Of the script for Composer."""
_BATCHES: Final = 6
"""Of each of them."""


def _renamed(name: str, folder: Path) -> Path:
    """Return a copy of a script in which only the package's name was replaced."""
    text = (CLIENTS / f"{name}.py").read_text()
    text, count = re.subn(
        r"^(from|import) streaming\b", r"\1 streaming_core.mosaic", text, flags=re.MULTILINE
    )
    assert count
    script = folder / f"{name}.py"
    script.write_text(text)
    return script


def _printed(name: str, folder: Path) -> tuple[Any, Any]:
    """Return what a script prints with us, and what it printed with the reference."""
    data = folder / "data"
    data.mkdir()
    found = printed(sys.executable, _renamed(name, folder), str(data))
    return found, json.loads(RECORDED.read_text())[name]


@pytest.mark.parametrize("name", ["train_images", "convert_in_parallel", "own_encodings"])
def test_scripts_print_what_they_did(name: str, tmp_path: Path) -> None:
    """Subclasses with `transforms`, parts merged by hand, encodings, shards read one by one."""
    found, recorded = _printed(name, tmp_path)
    assert found == recorded


def test_packed_batches_go_on_exactly(tmp_path: Path) -> None:
    """The reference counts rows of packed batches as samples, and repeats some when it goes on."""
    found, recorded = _printed("finetune_text", tmp_path)
    assert found["head"] + found["tail"] == found["whole"]
    assert recorded["head"] + recorded["tail"] != recorded["whole"]
    del found["tail"], recorded["tail"]
    assert found == recorded


@pytest.mark.framework
@pytest.mark.parametrize(
    ("interval", "workers"), [("3ba", "0"), ("2ba", "2"), ("1ep", "0"), ("1ep", "2")]
)
def test_composer_goes_on_from_each_checkpoint(
    interval: str, workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the batches that were left, in the middle of an epoch and at its end."""
    needs("Composer", _COMPOSER.exists(), "run tests/servers/install.sh composer")
    packages = [str(_ROOT / name) for name in ("streaming_core", "writer", "reader")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(packages))
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    script = _renamed("train_with_composer", tmp_path)
    found = printed(str(_COMPOSER), script, str(data), interval, workers)
    whole = found["whole"]
    for epoch in range(_EPOCHS):
        begin = epoch * _BATCHES
        given = [number for _, batch in whole[begin : begin + _BATCHES] for number in batch]
        assert sorted(given) == list(range(24))
    step = _BATCHES if interval == "1ep" else int(interval.removesuffix("ba"))
    assert sorted(map(int, found["again"])) == [*range(step, _EPOCHS * _BATCHES, step)]
    for batches, again in found["again"].items():
        assert again == whole[int(batches) :], f"after {batches} batches"
