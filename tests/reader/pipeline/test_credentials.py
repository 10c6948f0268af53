"""Files that nobody converted, behind a door whose key changes while an epoch is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.web import Asked, Said, WebServer

from streaming_core import create_dataloader
from streaming_core.cli._index_files import IndexSettings, write_index

if TYPE_CHECKING:
    from pathlib import Path


class _Door:
    """Lets in who has the token that holds now."""

    def __init__(self) -> None:
        self.token = "first"  # noqa: S105 - of a test
        self.refused = 0

    def __call__(self, asked: Asked) -> Said | None:
        if asked.headers.get("authorization") == self.token:
            return None
        self.refused += 1
        return Said(401, b"who are you?")


class _Keys:
    """Reads the token where it is kept, in whichever process asks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> dict[str, Any]:
        return {"headers": {"Authorization": self.path.read_text()}}


@pytest.mark.parametrize(
    "way",
    [
        {"num_workers": 0},
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "fork"}, marks=pytest.mark.process
        ),
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn"}, marks=pytest.mark.process
        ),
    ],
    ids=str,
)
def test_an_epoch_goes_on_across_a_change_of_credentials(
    tmp_path: Path, way: dict[str, Any]
) -> None:
    """In workers too, without starting them anew: they have the function, not what it gave."""
    folder = tmp_path / "served"
    folder.mkdir()
    for at in range(30):
        ids = list(range(at * 10, at * 10 + 10))
        pq.write_table(pa.table({"id": ids}), folder / f"{at:02}.parquet")
    write_index(f"{folder}/*.parquet", IndexSettings())
    door, path = _Door(), tmp_path / "token"
    path.write_text(door.token)
    with WebServer(folder, answer=door) as server:
        loader, _ = create_dataloader(
            remote=f"{server.url}/*.parquet",
            local=tmp_path / "local",
            storage_options=_Keys(path),
            batch_size=10,
            predownload=10,
            **way,
        )
        batches = iter(loader)
        found = [next(batches)["id"].tolist() for _ in range(3)]
        path.write_text("second")
        door.token = "second"  # noqa: S105 - of a test
        found += [batch["id"].tolist() for batch in batches]
    assert found == [list(range(at, at + 10)) for at in range(0, 300, 10)]
    assert 0 < door.refused < 20
