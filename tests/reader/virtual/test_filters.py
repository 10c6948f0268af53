"""Filters: rows that are left out before training begins, so that the rest is a data set."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from tests.servers.web import WebServer

from streaming_core import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, open_store
from streaming_core._virtual import build_index, chosen_files, dump, place_of
from streaming_core._virtual._discover import published_name
from streaming_core._virtual._kinds import _packing, _parquet
from streaming_core._world import World
from streaming_core.errors import (
    CheckpointError,
    IndexMissingError,
    MissingColumnError,
    SchemaError,
    SourceChangedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS = 6000


@pytest.fixture(scope="module", autouse=True)
def _groups_stay_apart() -> Iterator[None]:
    """Let a unit be one row group, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_packing, "_FEW_BYTES", 0)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Hive tree of Parquet files of 500 rows a group."""
    folder = tmp_path_factory.mktemp("tree")
    rng = np.random.default_rng(3)
    for year, lang in itertools.product((2022, 2023), ("de", None)):
        place = folder / f"year={year}" / f"lang={lang or '__HIVE_DEFAULT_PARTITION__'}"
        place.mkdir(parents=True)
        first = len(list(folder.rglob("*.parquet"))) * _ROWS
        table = pa.table(
            {
                "id": np.arange(first, first + _ROWS),
                "x": pa.array(rng.random(_ROWS), mask=rng.random(_ROWS) < 0.1),
                "text": [None if n % 5 == 0 else f"t{n % 17}" for n in range(_ROWS)],
                "info": [{"n": n % 10} for n in range(_ROWS)],
                "big": [bytes(rng.integers(0, 256, 50, np.uint8)) for _ in range(_ROWS)],
            }
        )
        pq.write_table(table, place / "a.parquet", row_group_size=500)
    return folder


def _opened(folder: object, local: Path, filters: Any, **options: Any) -> StreamingDataset:
    given = {"format": "parquet", "columns": ["id"], **options}
    stream = Stream(remote=str(folder), local=local, filters=filters, **given)
    return StreamingDataset(streams=[stream], batch_size=16, shuffle=True)


def _ids(dataset: StreamingDataset) -> list[int]:
    return sorted(int(dataset[at]["id"]) for at in range(len(dataset)))


_FILTERS: list[Any] = [
    [("x", ">", 0.9)],
    [("year", "=", 2023)],
    [("year", ">", 2022), ("x", "<=", 0.05)],
    [[("lang", "==", "de"), ("id", "<", 700)], [("text", "in", ["t1", "t16"])]],
    [("lang", "not in", ["fr"])],
    [("lang", "!=", "fr"), ("x", "!=", 0)],
    pc.field("lang").is_null() & ~pc.field("text").is_valid(),
    (pc.field("info", "n") == 3) & (pc.field("id") - 7 > 9000),
    pc.starts_with(pc.field("text"), "t1") & (pc.field("id") > 20_000),
    [("id", ">=", 0)],
]


@pytest.mark.parametrize("filters", _FILTERS, ids=str)
def test_the_rows_are_those_that_arrow_finds(folder: Path, tmp_path: Path, filters: Any) -> None:
    """With columns of folders, missing values, and columns that are not asked for."""
    expression = (
        filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters)
    )
    wanted = pds.dataset(folder, partitioning="hive").to_table(columns=["id"], filter=expression)
    dataset = _opened(folder, tmp_path, filters)
    assert len(dataset) == wanted.num_rows
    assert _ids(dataset) == sorted(wanted["id"].to_pylist())
    assert set(dataset[0]) == {"id"}


@pytest.mark.parametrize(
    ("ranks", "workers"), [(1, 0), (2, 0), pytest.param(1, 2, marks=pytest.mark.process)]
)
def test_all_rows_that_are_kept_come_once_resumed_anywhere(
    folder: Path, tmp_path: Path, ranks: int, workers: int
) -> None:
    """On any world: what came before a stop and what comes after are all of them."""

    def loader(rank: int, state: Any) -> StreamingDataLoader:
        stream = Stream(
            remote=folder,
            local=tmp_path,
            format="parquet",
            columns=["id"],
            filters=[("x", ">", 0.97)],
        )
        dataset = StreamingDataset(
            streams=[stream],
            batch_size=8,
            shuffle=True,
            num_canonical_nodes=2,
            world=World(num_ranks=ranks, ranks_per_node=ranks, rank=rank),
        )
        found = StreamingDataLoader(dataset, batch_size=8, num_workers=workers)
        if state is not None:
            found.load_state_dict(state)
        return found

    def epoch(state: Any, stop: int | None) -> tuple[list[int], Any]:
        ids: list[int] = []
        for rank in range(ranks):
            each = loader(rank, state)
            for batch in itertools.islice(each, stop):
                ids += [int(number) for number in batch["id"]]
            after = each.state_dict()
        return ids, after

    whole, _ = epoch(None, None)
    truth = pds.dataset(folder).to_table(filter=pc.field("x") > 0.97)["id"].to_pylist()
    assert set(whole) == set(truth)
    for stop in (1, 7, 20):
        head, state = epoch(None, stop)
        tail, _ = epoch(state, None)
        assert sorted(head + tail) == sorted(whole), stop


def test_a_checkpoint_belongs_to_its_filter(folder: Path, tmp_path: Path) -> None:
    """Other rows are other data, also where there are as many; the same rows are not."""
    before = _opened(folder, tmp_path, [("id", "<", 1000)])
    state = before.state_dict(5, from_beginning=True)
    with pytest.raises(CheckpointError, match="data"):
        _opened(folder, tmp_path, [("id", ">", 6000), ("id", "<=", 7000)]).load_state_dict(state)
    with pytest.raises(CheckpointError, match="data"):
        _opened(folder, tmp_path, None).load_state_dict(state)
    same = _opened(folder, tmp_path, pc.field("id") <= 999)
    same.load_state_dict(state)


def test_copies_of_one_filter_are_not_taken_for_anothers(folder: Path, tmp_path: Path) -> None:
    """All share the folder of the cache."""
    for bound in (100, 200, 150, 100):
        assert _ids(_opened(folder, tmp_path, [("id", "<", bound)])) == list(range(bound))
    assert len(_ids(_opened(folder, tmp_path, None))) == 4 * _ROWS


@pytest.fixture
def server(folder: Path) -> Iterator[WebServer]:
    """Return a web server of the files, with an index beside them."""
    with WebServer() as found:
        store = open_store(f"{found.url}/set")
        names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.parquet"))]
        for name in names:
            found.files.put(f"set/{name}", (folder / name).read_bytes())
        files = []
        for file in chosen_files(place_of(str(folder)), "parquet", [".parquet"]):
            info = store.head(file.key)
            files.append(type(file)(file.key, info.size, info.etag, file.constants))
        index = build_index(store, files, "parquet", pattern="**/*.parquet")
        found.files.put(f"set/{published_name('**/*.parquet')}", dump(index))
        found.log.clear()
        yield found


def _fetched(server: WebServer) -> int:
    spans = [
        logged.range.removeprefix("bytes=").split("-") for logged in server.log if logged.range
    ]
    return sum(int(last) - int(first) + 1 for first, last in spans)


def _chunks(folder: Path, names: set[str], wanted: Any) -> int:
    """Return the bytes of the chunks of some columns, in groups that are wanted."""
    total = 0
    for path in sorted(folder.rglob("*.parquet")):
        metadata = pq.read_metadata(path)
        for group in (metadata.row_group(at) for at in range(metadata.num_row_groups)):
            if wanted(group.column(0).statistics):
                for at in range(group.num_columns):
                    chunk = group.column(at)
                    inside = chunk.path_in_schema in names
                    total += chunk.total_compressed_size if inside else 0
    return total


def test_only_what_cannot_be_known_is_fetched(
    folder: Path, server: WebServer, tmp_path: Path
) -> None:
    """Of the columns that the filter looks at, where statistics leave it open; once per node."""
    place = f"{server.url}/set/**/*.parquet"

    def cost(filters: Any, local: str) -> int:
        server.log.clear()
        _opened(place, tmp_path / local, filters)
        return _fetched(server)

    assert cost([("year", "==", 2023)], "a") == 0
    assert cost([("lang", "in", ["de", "fr"])], "a") == 0
    assert cost([("id", "<", 3000)], "a") == 0  # six groups whole, the others not at all
    inside = _chunks(folder, {"id"}, lambda one: one.min <= 3100 <= one.max)
    assert 0 < cost([("id", "<", 3100)], "a") == inside
    both = _chunks(folder, {"id", "x"}, lambda one: one.min <= 499)
    assert cost([("id", "<", 500), ("x", "<", 0.5)], "a") == both
    assert cost([("id", "<", 500), ("x", "<", 0.5)], "a") == 0
    everything = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    assert cost([("text", "==", "t3")], "b") < everything / 4
    assert {logged.method for logged in server.log} == {"GET"}


def test_a_filter_that_keeps_nothing_says_so(folder: Path, tmp_path: Path) -> None:
    """Rather than to train on nothing."""
    with pytest.raises(SchemaError, match="filters keep none of 24000 rows"):
        _opened(folder, tmp_path, [("id", "<", 0)])


@pytest.mark.parametrize(
    ("filters", "error", "says"),
    [
        ([("nope", ">", 1)], MissingColumnError, r"filters: no column 'nope'.*'text'"),
        ([("text", ">", 1)], SchemaError, r"do not fit text: large_string"),
        (pc.field("id"), SchemaError, r"give int64 where true or false"),
        ("id > 3", TypeError, r"filters must be"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, filters: Any, error: type[Exception], says: str
) -> None:
    """Before any row is fetched; the message has the columns."""
    with pytest.raises(error, match=says):
        _opened(folder, tmp_path, filters)


def test_shards_with_an_index_take_no_filters(tmp_path: Path) -> None:
    """They say how data of other formats is named."""
    with MDSWriter(out=tmp_path / "mds", columns={"id": "int"}) as out:
        out.write({"id": 1})
    stream = Stream(remote=tmp_path / "mds", local=tmp_path / "l", filters=[("id", ">", 0)])
    with pytest.raises(SchemaError, match="filters cannot be given for an MDS data set"):
        StreamingDataset(streams=[stream], batch_size=1)


# --- files that come, go and change ---------------------------------------------------------------


def _write(path: Path, first: int, count: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": np.arange(first, first + count)}), path)


def test_files_that_come_and_go_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is new is looked at; a filter is looked at anew."""
    looked: list[str] = []
    scan = _parquet.Parquet.scan

    def noted(self: Any, reader: Any) -> Any:
        looked.append(reader.file.key)
        return scan(self, reader)

    monkeypatch.setattr(_parquet.Parquet, "scan", noted)
    data, local = tmp_path / "data", tmp_path / "local"
    for at in range(3):
        _write(data / f"{at}.parquet", at * 10)
    assert _ids(_opened(data, local, [("id", ">", 5)])) == list(range(6, 30))
    looked.clear()
    assert _ids(_opened(data, local, [("id", ">", 5)])) == list(range(6, 30))
    assert not looked
    _write(data / "3.parquet", 30)
    (data / "1.parquet").unlink()
    _other(tmp_path).replace(data / "2.parquet")
    found = _ids(_opened(data, local, [("id", ">", 5)]))
    assert found == [*range(6, 10), *range(30, 40), *range(500, 520)]
    assert sorted(looked) == ["2.parquet", "3.parquet"]
    kept = [path.name for path in (local / ".streaming").iterdir()]
    assert sum(name.endswith(".index") for name in kept) == 1
    assert sum(name.endswith(".keep") for name in kept) == 1


def _other(folder: Path) -> Path:
    _write(folder / "other", 500, 20)
    return folder / "other"


def test_a_file_that_changes_while_a_filter_looks_is_told(tmp_path: Path) -> None:
    """As one that changes while rows are read."""
    data = tmp_path / "data"
    for at in range(3):
        _write(data / f"{at}.parquet", at * 10)
    place = place_of(str(data))
    index = build_index(place.store, chosen_files(place, None, [".parquet"]), "parquet")
    path = data / published_name("")
    path.parent.mkdir()
    path.write_bytes(dump(index))
    _other(tmp_path).replace(data / "1.parquet")
    with pytest.raises(SourceChangedError, match=r"1\.parquet.*changed after it was indexed"):
        _opened(data, tmp_path / "local", pc.field("id") == 15)
    dataset = _opened(data, tmp_path / "local", None)
    assert len(dataset) == 30
    with pytest.raises(SourceChangedError, match="streaming-core index"):
        list(dataset)


def test_an_index_that_does_not_fit_is_refused_where_it_was_named(tmp_path: Path) -> None:
    """Missing, of another pattern, of another format."""
    data, out = tmp_path / "data", tmp_path / "an.index"
    _write(data / "a" / "0.parquet", 0)
    place = place_of(f"{data}/*/*.parquet")
    with pytest.raises(IndexMissingError, match="streaming-core index"):
        _opened(f"{data}/*/*.parquet", tmp_path / "l", None, index=out, format=None)
    files = chosen_files(place, None, [".parquet"])
    out.write_bytes(dump(build_index(place.store, files, "parquet", pattern=place.pattern)))
    assert len(_opened(f"{data}/*/*.parquet", tmp_path / "l", None, index=out, format=None)) == 10
    with pytest.raises(SchemaError, match=r"match '\*/\*\.parquet', not ''"):
        _opened(data, tmp_path / "l", None, index=out)
    with pytest.raises(SchemaError, match="of 'parquet' files, not of 'orc'"):
        _opened(f"{data}/*/*.parquet", tmp_path / "l", None, index=out, format="orc")
