"""What EasyData, the data module of EasyDeL, does, used as its documentation says."""

# The promises stand in `_cases.py`; every scenario takes the same two folders, needed or not.
# ruff: noqa: ANN401, ARG001, BLE001, D103, FBT003

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _found import Found, big_array, memory_against, raised, rows
from easydel.data import (
    AsyncDataLoader,
    DatasetConfig,
    JsonShardedSource,
    LoadStageConfig,
    ParquetShardedSource,
    Pipeline,
    PipelineConfig,
)
from tests.servers.faults import Cut, Latency, Status
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _ids(source: Any) -> list[int]:
    return [int(row["id"]) for name in source.shard_names for row in source.open_shard(name)]


def _from(source: Any, row: int) -> list[int]:
    (name,) = source.shard_names
    return [int(found["id"]) for found in source.open_shard_at_row(name, row)]


def _batched(loader: Any) -> list[int]:
    return [int(i) for batch in loader for i in batch["id"]]


# --- checkpoints ----------------------------------------------------------------------------------


def resume_with_blank_lines(data: Path, work: Path) -> Found:
    source = JsonShardedSource(str(data / "text" / "blank.jsonl"))
    return rows([*_ids(source)[:50], *_from(source, 50)], range(200))


def resume_at_the_end(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "rows" / "part-0.parquet"))
    return rows([*_ids(source), *_from(source, 1000)], range(1000))


# --- epochs ---------------------------------------------------------------------------------------


def stall(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_listing(data)) as server, Proxy(server.url) as proxy:
        source = ParquetShardedSource(f"{proxy.url}/wide/*.parquet", columns=["id"])
        assert source.shard_names
        rule = proxy.hurt(Latency(75.0), skip=5, first=1, methods=["GET"], path="*.parquet")
        loader = AsyncDataLoader(source, batch_size=1000)
        found = rows(_batched(loader), range(400_000))
        assert rule.num_done == 1, "the fault has to happen"
        return found


def orders_of_epochs(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "single" / "a.parquet"), columns=["id"])
    loader = AsyncDataLoader(source, batch_size=100, shuffle_buffer_size=500, seed=1)
    first, second = _batched(loader), _batched(loader)
    return Found(first != second, "same order" if first == second else "another order")


def last_batch(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "odd" / "*.parquet"), columns=["id"])
    loader = AsyncDataLoader(source, batch_size=400)
    return rows(_batched(loader), range(1500))


def shuffled_over_files(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "rows" / "*.parquet"), columns=["id"])
    loader = AsyncDataLoader(source, batch_size=100, shuffle_buffer_size=1000, seed=1)
    seen = [len({int(i) // 1000 for i in batch["id"]}) for batch in loader]
    mean = sum(seen) / len(seen)
    return Found(mean > 5, f"{mean:.1f} of 10 files, with a buffer of 1,000 rows")


def equal_batches_of_unequal_files(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "sizes" / "*.parquet"), columns=["id"])
    names = source.shard_names
    found = [
        sum(1 for name in names[rank::2] for _ in source.open_shard(name)) // 10
        for rank in range(2)
    ]
    return Found(len(set(found)) == 1, f"{'/'.join(map(str, found))} batches")


# --- files ----------------------------------------------------------------------------------------


def unknown_column(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "single" / "a.parquet"), columns=["id", "labell"])
    (name,) = source.shard_names
    found = sorted(next(iter(source.open_shard(name))))
    return Found(False, f"no error; columns {', '.join(found)}")


def nothing_found(data: Path, work: Path) -> Found:
    place = work / "none"
    try:
        source = ParquetShardedSource(str(place / "*.parquet"))
        return Found(False, f"no error; {len(_ids(source))} rows")
    except Exception as error:
        return Found(str(place) in str(error), raised(error))


def hive_columns(data: Path, work: Path) -> Found:
    source = ParquetShardedSource(str(data / "hive" / "**" / "*.parquet"))
    name = source.shard_names[0]
    found = sorted(next(iter(source.open_shard(name))))
    return Found("year" in found, f"columns {', '.join(found)}")


def memory_of_an_array(data: Path, work: Path) -> Found:
    path = big_array(work)
    source = JsonShardedSource(str(path), jsonl=False)
    (name,) = source.shard_names
    return memory_against(path, lambda: next(iter(source.open_shard(name))))


def unknown_setting(data: Path, work: Path) -> Found:
    config = PipelineConfig(
        datasets=[DatasetConfig(data_files=str(data / "rows" / "*.parquet"), num_rows=10)],
        load=LoadStageConfig(batch_size=10, prefetch_enabled=False),
    )
    found = sum(len(batch["id"]) for batch in Pipeline.from_config(config).source().load().build())
    return Found(found == 10, f"num_rows=10 gives {found:,} rows")


# --- the store ------------------------------------------------------------------------------------


def _listing(folder: Path, token: str | None = None) -> Callable[[Asked], Said | None]:
    """Return an answer that lists a folder as web servers do, for whoever has the token."""

    def answer(asked: Asked) -> Said | None:
        if token and asked.headers.get("authorization") != f"Bearer {token}":
            return Said(401)
        if not asked.path.endswith("/"):
            return None
        names = sorted(path.name for path in (folder / asked.path.strip("/")).iterdir())
        return Said(200, "".join(f'<a href="{name}">{name}</a>' for name in names).encode())

    return answer


def bytes_of_a_column(data: Path, work: Path) -> Found:
    whole = (data / "wide" / "a.parquet").stat().st_size
    with WebServer(data, answer=_listing(data)) as server, Proxy(server.url) as proxy:
        found = _ids(ParquetShardedSource(f"{proxy.url}/wide/*.parquet", columns=["id"]))
        assert len(found) == 400_000
        part = proxy.num_bytes / whole
    return Found(part < 0.1, f"{part:.0%} of the file's bytes")


def one_refusal(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_listing(data)) as server, Proxy(server.url) as proxy:
        source = ParquetShardedSource(f"{proxy.url}/wide/*.parquet", columns=["id"])
        assert source.shard_names
        proxy.hurt(Status(503), first=1, methods=["GET"], path="*.parquet")
        return rows(_ids(source), range(400_000))


def cut_in_the_middle(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_listing(data)) as server, Proxy(server.url) as proxy:
        source = ParquetShardedSource(f"{proxy.url}/wide/*.parquet", columns=["id"])
        assert source.shard_names
        proxy.hurt(Cut(1000), skip=5, first=1, methods=["GET"], path="*.parquet")
        return rows(_ids(source), range(400_000))


def private_listing(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_listing(data, "let-me")) as server:
        options = {"headers": {"Authorization": "Bearer let-me"}}
        source = ParquetShardedSource(
            f"{server.url}/rows/*.parquet", storage_options=options, columns=["id"]
        )
        return rows(_ids(source), range(10_000))
