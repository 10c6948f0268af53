"""Reading the sources of a fixture as the release did that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.compat.bucket import BUCKET, Bucket
from tests.compat.cases import assert_told
from tests.compat.command import run_command
from tests.compat.jobs import opened
from tests.compat.rows import digest

from streaming_core import StreamingDataLoader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from tests.compat.cases import Case

__all__ = ["assert_same", "read_again"]


def assert_same(stream: dict[str, Any], told: dict[str, Any], key: str) -> None:
    """Assert that a stream gives the recorded rows, in order and after the checkpoint."""
    rows = list(opened({"streams": [stream], "batch_size": 4}))
    assert len(rows) == told["num_rows"]
    assert digest(rows) == told["rows"]
    dataset = opened({"streams": [stream], "batch_size": 4, "shuffle": True})
    loader = StreamingDataLoader(dataset, batch_size=4, batch_format="rows")
    loader.load_state_dict(told["state"])
    assert [row[key] for batch in loader for row in batch] == told["remaining"]


def read_again(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    """Read a source in each way that the manifest has; the old files are used, or the log says."""
    bucket, key = tmp_path / "bucket", case.settings["key"]
    with Bucket(bucket) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for way, views in case.settings["ways"].items():
            case.fixture.unpack(bucket / way / case.name, f"bucket/{way}/{case.name}")
            local = tmp_path / "local" / way
            if way != "beside":
                case.fixture.unpack(local, f"local/{way}/{case.name}")
            # Opening a view may remove others that were not used for a month, and says so.
            caplog.clear()
            for told in views:
                place = str(bucket) if way == "beside" else f"s3://{BUCKET}"
                remote = f"{place}/{told['stream']['remote']}"
                server.forget()
                assert_same({**told["stream"], "remote": remote, "local": str(local)}, told, key)
                if way != "beside":
                    reused = assert_told(server.read_keys(), told["reads"], caplog)
                    record_property(f"{way} reused", reused)
                    if way == "published" and reused:
                        assert server.num_listings() <= told["listings"]
            if way != "listed":
                told = views[0]["stream"]
                run_command("index", f"{place}/{told['remote']}", "--check", *_named(told))


def _named(stream: dict[str, Any]) -> list[str]:
    return ["--format", stream["format"]] if "format" in stream else []
