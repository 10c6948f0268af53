"""What torch-dataloader-utils does, used as its documentation says."""

# The promises stand in `_cases.py`; every scenario takes the same two folders, needed or not.
# ruff: noqa: ANN401, ARG001, BLE001, D103, FBT003, PLC0415

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from _found import Found, launch, paused, raised, rows
from tests.servers.faults import Status
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer
from torch.utils.data import DataLoader
from torch_dataloader_utils import IcebergDataset, SizeBalancedSplitStrategy, StructuredDataset

SIDE = Path(__file__).stem


def _made(path: object, **given: Any) -> tuple[Any, Any]:
    options = {"format": "parquet", "num_workers": 0, "batch_size": 100, **given}
    return StructuredDataset.create_dataloader(path=str(path), **options)


def _table(data: Path, name: str, **given: Any) -> tuple[Any, Any]:
    folder = data / "tables"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }
    options = {"num_workers": 0, "batch_size": 100, **given}
    return IcebergDataset.create_dataloader(table=name, catalog_config=catalog, **options)


def _ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


# --- checkpoints ----------------------------------------------------------------------------------


def resume_with_workers(data: Path, work: Path) -> Found:
    def made() -> tuple[Any, Any]:
        return _made(data / "rows", batch_size=500, num_workers=2, split_rows=1000)

    loader, dataset = made()
    first = _ids(paused(loader, 17, 1.0))
    state = dataset.state_dict()
    loader, dataset = made()
    dataset.load_state_dict(state)
    return rows(first + _ids(loader), range(10_000))


def resume_in_process(data: Path, work: Path) -> Found:
    loader, dataset = _made(data / "rows", batch_size=1000)
    first = _ids(paused(loader, 1))
    state = dataset.state_dict()
    loader, dataset = _made(data / "rows", batch_size=1000)
    dataset.load_state_dict(state)
    return rows(first + _ids(loader), range(10_000))


def resume_with_other_workers(data: Path, work: Path) -> Found:
    loader, dataset = _made(data / "rows", num_workers=2, split_rows=1000)
    first = _ids(paused(loader, 60, 1.0))
    state = dataset.state_dict()
    loader, dataset = _made(data / "rows", num_workers=1, split_rows=1000)
    dataset.load_state_dict(state)
    return rows(first + _ids(loader), range(10_000))


def resume_with_other_ranks(data: Path, work: Path) -> Found:
    loader, dataset = _made(data / "rows", num_ranks=2, rank=0, split_rows=1000)
    other, _ = _made(data / "rows", num_ranks=2, rank=1, split_rows=1000)
    first = _ids(paused(loader, 20)) + _ids(paused(other, 20))
    state = dataset.state_dict()
    loader, dataset = _made(data / "rows", num_ranks=1, rank=0, split_rows=1000)
    dataset.load_state_dict(state)
    return rows(first + _ids(loader), range(10_000))


def resume_then_set_epoch(data: Path, work: Path) -> Found:
    def made() -> tuple[Any, Any]:
        return _made(data / "rows", num_workers=2, split_rows=1000, shuffle=True)

    loader, dataset = made()
    dataset.set_epoch(0)
    first = _ids(paused(loader, 100, 1.0))[:8000]
    state = dataset.state_dict()
    loader, dataset = made()
    dataset.load_state_dict(state)
    dataset.set_epoch(0)
    again = _ids(loader)
    return Found(len(again) <= 10_000 - len(first), f"{len(again):,} rows after 8,000 of 10,000")


# --- ranks ----------------------------------------------------------------------------------------


def _prepared_ids(accelerator: Any, data: Path) -> list[int]:
    loader, _ = _made(
        data / "small",
        num_ranks=accelerator.num_processes,
        rank=accelerator.process_index,
        split_rows=100,
        columns=["id"],
    )
    found = _ids(accelerator.prepare(loader))
    accelerator.end_training()
    return found


def accelerate(data: Path, work: Path) -> Found:
    found = launch(SIDE, "accelerate_rank", data, work)
    return rows([i for ids in found for i in ids], range(1000))


def accelerate_rank(data: Path, work: Path) -> list[int]:
    from accelerate import Accelerator

    return _prepared_ids(Accelerator(), data)


def accelerate_without_dispatch(data: Path, work: Path) -> Found:
    found = launch(SIDE, "accelerate_without_dispatch_rank", data, work)
    return rows([i for ids in found for i in ids], range(1000))


def accelerate_without_dispatch_rank(data: Path, work: Path) -> list[int]:
    from accelerate import Accelerator, DataLoaderConfiguration

    config = DataLoaderConfiguration(dispatch_batches=False)
    return _prepared_ids(Accelerator(dataloader_config=config), data)


def _batches_by_rank(place: Path, ranks: int, **given: Any) -> list[int]:
    made = (_made(place, num_ranks=ranks, rank=rank, **given)[0] for rank in range(ranks))
    return [sum(1 for _ in loader) for loader in made]


def equal_batches(data: Path, work: Path) -> Found:
    found = _batches_by_rank(data / "small", 3, batch_size=10, split_rows=100)
    return Found(len(set(found)) == 1, f"{'/'.join(map(str, found))} batches")


def one_row_group_for_two_ranks(data: Path, work: Path) -> Found:
    found = _batches_by_rank(data / "single", 2, split_rows=100)
    return Found(len(set(found)) == 1, f"{'/'.join(map(str, found))} batches")


def stripes_of_two_ranks(data: Path, work: Path) -> Found:
    found = _batches_by_rank(data / "orc", 2, format="orc", split_rows=1000)
    return Found(len(set(found)) == 1, f"{'/'.join(map(str, found))} batches")


def balanced_by_size(data: Path, work: Path) -> Found:
    found: list[int] = []
    for rank in range(2):
        strategy = SizeBalancedSplitStrategy()
        loader, _ = _made(data / "small", num_ranks=2, rank=rank, split_strategy=strategy)
        found += _ids(loader)
    return rows(found, range(1000))


# --- batches --------------------------------------------------------------------------------------


def exact_batches(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "odd")
    sizes = [len(batch["id"]) for batch in loader]
    return Found(set(sizes) == {100}, f"sizes {sizes[:6]} …".replace("[", "").replace("]", ""))


def length(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "odd")
    return Found(len(loader) == 15, str(len(loader)))


def loader_options(data: Path, work: Path) -> Found:
    _made(data / "small", num_workers=1, persistent_workers=True, pin_memory=False)
    return Found(True, "taken")


def epochs_of_living_workers(data: Path, work: Path) -> Found:
    _, dataset = _made(data / "small", num_workers=2, split_rows=100, shuffle=True)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    orders = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        orders.append(_ids(loader))
    return Found(
        orders[0] != orders[1], "same order" if orders[0] == orders[1] else "another order"
    )


def shuffled_within_batches(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", shuffle=True, shuffle_buffer_size=2000, split_rows=10_000)
    ids = [batch["id"].numpy() for batch in loader]
    rising = sum(float(np.mean(np.diff(one) > 0)) for one in ids) / len(ids)
    return Found(rising < 0.7, f"{rising:.0%} of neighbours in a batch ascend")


def shuffled_over_files(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", shuffle=True)
    seen = [len({int(i) // 1000 for i in batch["id"]}) for batch in loader]
    mean = sum(seen) / len(seen)
    return Found(mean > 5, f"{mean:.1f} of 10 files")


def fixed_lists(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "vector.parquet")
    value = next(iter(loader))["vector"]
    return Found(isinstance(value, torch.Tensor), type(value).__name__)


def times(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "time.parquet")
    value = next(iter(loader))["time"]
    return Found(isinstance(value, torch.Tensor), type(value).__name__)


def missing_ints(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "null_int.parquet")
    value = next(iter(loader))["n"]
    return Found(int(value[1]) == 2**53 + 1, f"{value.dtype}, {2**53 + 1} is {int(value[1])}")


def missing_bools(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "null_bool.parquet")
    next(iter(loader))
    return Found(True, "read")


def arrow_batches(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "small", output_format="arrow")
    return rows((i for batch in loader for i in batch["id"].to_pylist()), range(1000))


def numpy_from_spawned_workers(data: Path, work: Path) -> Found:
    torch.multiprocessing.set_start_method("spawn", force=True)
    loader, _ = _made(data / "small", output_format="numpy", num_workers=1)
    return rows(_ids(loader), range(1000))


# --- files ----------------------------------------------------------------------------------------


def hive_folder(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "hive", partitioning="hive")
    return rows(_ids(loader), range(400))


def _hive(data: Path, **given: Any) -> Any:
    return _made(f"{data}/hive/**/*.parquet", partitioning="hive", **given)[0]


def hive_types(data: Path, work: Path) -> Found:
    value = next(iter(_hive(data)))["year"]
    kind = str(getattr(value, "dtype", type(value[0]).__name__))
    return Found("int" in kind, f"year is {kind}")


def hive_filter(data: Path, work: Path) -> Found:
    return rows(_ids(_hive(data, filters=pc.field("year") == "2023")), range(200, 400))


def hive_unasked(data: Path, work: Path) -> Found:
    found = sorted(next(iter(_hive(data, columns=["id"]))))
    return Found(found == ["id"], f"columns {', '.join(found)}")


def unknown_column(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", columns=["id", "labell"])
    found = sorted(next(iter(loader)))
    return Found(False, f"no error; columns {', '.join(found)}")


def nothing_found(data: Path, work: Path) -> Found:
    (work / "empty").mkdir(exist_ok=True)
    loader, _ = _made(work / "empty")
    return Found(False, f"no error; {len(_ids(loader))} rows")


def order_of_files(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "sizes")
    ids = _ids(loader)
    starts = [str(a) for a, b in zip(ids, [-1, *ids], strict=False) if a != b + 1]
    return Found(ids == list(range(1000)), f"runs that begin at {', '.join(starts)}")


def json_array(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "array" / "a.json", format="json")
    return rows(_ids(loader), range(200))


def avro(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "avro" / "a.avro", format="avro")
    return rows(_ids(loader), range(200))


# --- the store ------------------------------------------------------------------------------------


def _part(data: Path, **given: Any) -> tuple[float, int]:
    """Return which part of a file's bytes an epoch fetched, and how many rows it gave."""
    whole = (data / "wide" / "a.parquet").stat().st_size
    with WebServer(data) as server, Proxy(server.url) as proxy:
        loader, _ = _made(f"{proxy.url}/wide/a.parquet", **given)
        proxy.forget()
        count = len(_ids(loader))
        return proxy.num_bytes / whole, count


def bytes_of_a_column(data: Path, work: Path) -> Found:
    part, _ = _part(data, columns=["id"])
    return Found(part < 0.1, f"{part:.0%} of the file's bytes")


def bytes_of_a_filter(data: Path, work: Path) -> Found:
    part, count = _part(data, columns=["id"], filters=pc.field("id") < 40_000)
    return Found(part < 0.02, f"{part:.0%} of the file's bytes for {count:,} of 400,000 rows")


def footers_of_a_private_store(data: Path, work: Path) -> Found:
    def answer(asked: Asked) -> Said | None:
        return None if asked.headers.get("authorization") == "Bearer let-me" else Said(401)

    with WebServer(data, answer=answer) as server:
        options = {"headers": {"Authorization": "Bearer let-me"}}
        found = [
            len(_ids(loader))
            for loader in (
                _made(
                    f"{server.url}/wide/a.parquet",
                    columns=["id"],
                    num_ranks=2,
                    rank=rank,
                    split_rows=40_000,
                    storage_options=options,
                )[0]
                for rank in range(2)
            )
        ]
    return Found(found[0] == found[1], f"{' and '.join(f'{n:,}' for n in found)} rows on two ranks")


def footers_in_each_epoch(data: Path, work: Path) -> Found:
    with WebServer(data) as server:
        _, dataset = _made(f"{server.url}/wide/a.parquet", shuffle=True)
        before = len(server.log)
        dataset.set_epoch(1)
        return Found(len(server.log) == before, f"{len(server.log) - before} requests")


def one_refusal(data: Path, work: Path) -> Found:
    with WebServer(data) as server, Proxy(server.url) as proxy:
        loader, _ = _made(f"{proxy.url}/wide/a.parquet", columns=["id"])
        proxy.hurt(Status(503), first=1, methods=["GET"])
        return rows(_ids(loader), range(400_000))


# --- tables ---------------------------------------------------------------------------------------


def deleted_rows(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.deleted", split_rows=1000)
    return rows(_ids(loader), (i for i in range(10_000) if i % 10))


def rewritten(data: Path, work: Path) -> Found:
    from pyiceberg.catalog import load_catalog

    loader, _ = _table(data, "db.rewritten", split_rows=100_000)
    folder = data / "tables"
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder / 'catalog.db'}")
    table = catalog.load_table("db.rewritten")
    table.overwrite(table.scan().to_arrow())
    catalog.close()
    return rows(_ids(loader), (i for i in range(10_000) if i % 10))


def renamed(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.renamed")
    found = sorted({tuple(sorted(batch)) for batch in loader})
    return Found(len(found) == 1, " and ".join(f"({', '.join(names)})" for names in found))


def deep_namespace(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.deep.t")
    return rows(_ids(loader), range(100))


def tagged(data: Path, work: Path) -> Found:
    taken = inspect.signature(IcebergDataset.create_dataloader).parameters
    ways = [name for name in taken if name in {"ref", "tag", "branch", "snapshot_id"}]
    return Found("ref" in ways or "tag" in ways, f"it takes {', '.join(ways)} only")


def migrated(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.migrated")
    found = sorted({name for batch in loader for name in batch})
    return Found(found == ["id", "lang"], f"columns {', '.join(found)}")


def mixed_formats(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.mixed")
    return rows(_ids(loader), range(200))


def equality_deletes(data: Path, work: Path) -> Found:
    try:
        loader, _ = _table(data, "db.equality")
        return rows(_ids(loader), (i for i in range(100) if i not in {3, 4}))
    except Exception as error:
        helps = "compact" in str(error) or "rewrite" in str(error)
        return Found(helps, raised(error))


def table_without_rows(data: Path, work: Path) -> Found:
    try:
        loader, _ = _table(data, "db.empty")
        return Found(False, f"no error; {len(_ids(loader))} rows")
    except Exception as error:
        return Found("empty" in str(error), raised(error))


def pruned_by_a_list(data: Path, work: Path) -> Found:
    loader, _ = _table(data, "db.pruned", filters=pc.field("id").isin([100, 150]))
    return rows(_ids(loader), [100, 150])
