"""Caches and checkpoints of tables, and of a dataset of the Hugging Face Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.compat.bucket import Bucket
from tests.compat.cases import Case, assert_told, cases
from tests.compat.making_sources import with_catalog
from tests.compat.reading import assert_same
from tests.servers.hf import Hub

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


pytestmark = pytest.mark.slow


@cases("tables")
def test_a_table_is_read_again(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    """The same version is read, from what the cache has of it or once more."""
    case.fixture.unpack(tmp_path)
    with Bucket(tmp_path / "bucket") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        stream = with_catalog(case.settings["stream"], tmp_path, server.url)
        local = str(tmp_path / "local" / case.name)
        assert_same({**stream, "local": local}, case.settings, case.settings["key"])
        reused = assert_told(server.read_keys(), case.settings["reads"], caplog)
        record_property("reused", reused)


@cases("hub")
def test_a_dataset_of_the_hub_is_read_again(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same commit is read, from what the cache has of it or once more."""
    case.fixture.unpack(tmp_path)
    tree, repo = tmp_path / "tree", case.settings["repo"]
    with Hub(repo) as hub:
        commit = case.settings["commit"]
        hub.trees[commit] = {
            path.relative_to(tree).as_posix(): path.read_bytes()
            for path in tree.rglob("*")
            if path.is_file()
        }
        hub.revisions[repo]["main"] = commit
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        stream = {**case.settings["stream"], "local": str(tmp_path / "local")}
        assert_same(stream, case.settings, case.settings["key"])
