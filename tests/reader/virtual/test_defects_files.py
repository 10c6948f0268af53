"""Files: what torch-dataloader-utils and EasyData find, skip or take without a word.

What both do here was seen by running them: see `docs/comparison-any-format.md`.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from tests.reader.frameworks.launching import quiet_environment
from tests.reader.virtual.defects import ids_of, made, none_lost, write_files

from streaming_core.errors import IndexMissingError, MissingColumnError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "workers",
    [0, pytest.param(1, marks=pytest.mark.process), pytest.param(2, marks=pytest.mark.process)],
)
def test_files_come_in_the_order_of_their_names(tmp_path: Path, workers: int) -> None:
    """Unless they are shuffled, and whatever their sizes.

    torch-dataloader-utils begins with the largest: the rows 100, 700, 500 and 0 of these.
    """
    folder = write_files(tmp_path / "sizes", [100, 400, 200, 300])
    assert ids_of(made(folder, batch_size=50, num_workers=workers)) == list(range(1000))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Hive tree by year and language, with values that folders have to escape."""
    folder = tmp_path_factory.mktemp("hive") / "table"
    for at, (year, lang) in enumerate(itertools.product((2022, 2023), ("de", "a%2Fb"))):
        place = folder / f"year={year}" / f"lang={lang}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": np.arange(at * 100, at * 100 + 100)}), place / "a.parquet")
    return folder


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_hive_tree_is_read_by_its_folder(tree: Path, workers: int) -> None:
    """Its folders become columns with their types, may be asked for by filters, and left out.

    torch-dataloader-utils finds no file in such a folder and says nothing; by a pattern, years are
    texts, a filter on them is an error, and they come though they were not asked for. EasyData
    knows no such columns.
    """
    loader = made(tree, num_workers=workers)
    batches = list(loader)
    none_lost((int(i) for batch in batches for i in batch["id"]), range(400))
    for batch in batches:
        assert set(batch) == {"id", "year", "lang"}
        assert batch["year"].tolist() == [2022 + i // 200 for i in batch["id"].tolist()]
        wanted = ["de" if i // 100 % 2 == 0 else "a/b" for i in batch["id"].tolist()]
        assert list(batch["lang"]) == wanted
    expressions: list[Any] = [
        [("year", "==", 2023)],
        [("year", ">", 2022), ("lang", "in", ["a/b"])],
        (pc.field("lang") == "de") & (pc.field("id") > 250),
    ]
    whole = pds.dataset(tree, partitioning="hive")
    for filters in expressions:
        kept = filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters)
        wanted_ids = whole.to_table(filter=kept)["id"].to_pylist()
        assert wanted_ids
        found = made(tree, filters=filters, columns=["id"], num_workers=workers)
        batches = list(found)
        assert {name for batch in batches for name in batch} == {"id"}
        none_lost((int(i) for batch in batches for i in batch["id"]), wanted_ids)
    only = made(tree, columns=["year"], num_workers=workers)
    assert {name for batch in only for name in batch} == {"year"}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"columns": ["id", "labell"]}, MissingColumnError, r"no column 'labell'.*'text'"),
        ({"columns": ["Id"]}, MissingColumnError, r"no column 'Id'.*'id'"),
        ({"filters": [("labell", "==", 1)]}, MissingColumnError, r"no column 'labell'"),
        ({"num_rows": 10}, SchemaError, r"'num_rows'"),
        ({"shuffle_buffer_size": 10}, SchemaError, r"shuffle_block_size"),
        ({"format": "feather9"}, SchemaError, r"no format 'feather9'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    """By name, before a row is read, and a place without files as well.

    Both leave out a column that there is not. EasyData takes `num_rows` and gives all rows;
    torch-dataloader-utils takes a folder without files for an epoch of none.
    """
    folder = write_files(tmp_path / "rows", [100])
    with pytest.raises(error, match=says):
        made(folder, **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises((SchemaError, IndexMissingError), match="empty"):
        made(tmp_path / "empty")


_MEASURED = """
import sys, threading
import pyarrow.json, torch
from streaming_core import create_dataloader

def own_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

most, done = [0], threading.Event()

def watch():
    while not done.wait(0.002):
        most[0] = max(most[0], own_kib())

before = own_kib()
watching = threading.Thread(target=watch)
watching.start()
loader, _ = create_dataloader(sys.argv[1], format="json", batch_size=1000)
ids = [int(i) for batch in loader for i in batch["id"]]
done.set()
watching.join()
assert ids == list(range(len(ids)))
print(len(ids), most[0] - before)
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_a_large_json_array_is_not_held_in_memory(tmp_path: Path) -> None:
    """Its elements are found once, and then read in parts, as lines would be.

    What counts is memory of its own; pages of mapped files the system takes back when it wants.

    EasyData loads it whole, as Python objects: four times the file for the first row.
    """
    large = tmp_path / "large.json"
    text, count = "x" * 400, 400_000
    with large.open("w") as file:
        for number in range(count):
            file.write(f'{"," if number else "["}{{"id": {number}, "text": "{text}"}}')
        file.write("]")
    script = tmp_path / "measured.py"
    script.write_text(_MEASURED)
    done = subprocess.run(
        [sys.executable, str(script), str(large)],
        env={**quiet_environment(), "STREAMING_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found, grown_kib = map(int, done.stdout.split())
    assert found == count
    assert grown_kib << 10 < large.stat().st_size
