"""What streaming-core does in the same places; the settings are the defaults where none is said."""

# The promises stand in `_cases.py`; every scenario takes the same two folders, needed or not.
# ruff: noqa: ANN401, ARG001, BLE001, D103, FBT003, PLC0415

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _found import Found, big_array, launch, memory_against, paused, raised, rows
from pyiceberg.catalog import load_catalog
from tests.servers.faults import Cut, Latency, Status
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

from streaming_core import create_dataloader

SIDE = Path(__file__).stem


def _made(place: object, **given: Any) -> tuple[Any, Any]:
    return create_dataloader(str(place), **{"format": "parquet", "batch_size": 100, **given})


def _ranks(place: object, ranks: int, **given: Any) -> list[Any]:
    return [
        _made(place, rank=rank, num_ranks=ranks, ranks_per_node=ranks, **given)
        for rank in range(ranks)
    ]


def _catalog(data: Path) -> dict[str, str]:
    folder = data / "tables"
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }


def _table(data: Path, work: Path, name: str, **given: Any) -> Any:
    options = {"catalog": _catalog(data), **given.pop("table", {})}
    loader, _ = create_dataloader(
        remote=name,
        local=work / "cache" / name,
        format="iceberg",
        format_options=options,
        batch_size=100,
        **given,
    )
    return loader


def _ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


# --- checkpoints ----------------------------------------------------------------------------------


def _resumed(data: Path, first: dict[str, Any], then: dict[str, Any], stop: int) -> Found:
    loader, _ = _made(data / "rows", **first)
    before = _ids(paused(loader, stop, 1.0))
    state = json.loads(json.dumps(loader.state_dict()))
    loader, _ = _made(data / "rows", **then)
    loader.load_state_dict(state)
    return rows(before + _ids(loader), range(10_000))


def resume_with_workers(data: Path, work: Path) -> Found:
    given = {"batch_size": 500, "num_workers": 2, "shuffle": True}
    return _resumed(data, given, given, 17)


def resume_in_process(data: Path, work: Path) -> Found:
    given = {"batch_size": 1000, "shuffle": True}
    return _resumed(data, given, given, 1)


def resume_with_other_workers(data: Path, work: Path) -> Found:
    return _resumed(data, {"num_workers": 2}, {"num_workers": 1}, 60)


def resume_with_other_ranks(data: Path, work: Path) -> Found:
    two = _ranks(data / "rows", 2, shuffle=True, batch_size=50)
    before = [i for loader, _ in two for i in _ids(paused(loader, 20))]
    loader, _ = _made(data / "rows", shuffle=True, batch_size=100)
    loader.load_state_dict(two[0][0].state_dict())
    return rows(before + _ids(loader), range(10_000))


def resume_then_set_epoch(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", shuffle=True, num_workers=2)
    loader.set_epoch(0)
    before = _ids(paused(loader, 80))
    state = loader.state_dict()
    loader, _ = _made(data / "rows", shuffle=True, num_workers=2)
    loader.load_state_dict(state)
    loader.set_epoch(0)
    again = _ids(loader)
    return Found(len(again) <= 10_000 - len(before), f"{len(again):,} rows after 8,000 of 10,000")


def _lines(path: Path, stop: int) -> Found:
    loader, _ = _made(path, format="jsonl", batch_size=10)
    before = _ids(paused(loader, stop))
    state = loader.state_dict()
    loader, _ = _made(path, format="jsonl", batch_size=10)
    loader.load_state_dict(state)
    return rows(before + _ids(loader), range(200))


def resume_with_blank_lines(data: Path, work: Path) -> Found:
    return _lines(data / "text" / "blank.jsonl", 5)


def resume_at_the_end(data: Path, work: Path) -> Found:
    place = data / "rows" / "part-0.parquet"
    loader, _ = _made(place, shuffle=True)
    before = _ids(loader)
    state = loader.state_dict()
    second = _ids(loader)
    loader, _ = _made(place, shuffle=True)
    loader.load_state_dict(state)
    found = rows(before, range(1000))
    # Nothing of that epoch is left, so what comes is the next one, as without a stop.
    is_next = _ids(loader) == second != before
    return Found(
        found.kept and is_next, f"{found.text}, then {'the next' if is_next else 'another'} epoch"
    )


# --- ranks ----------------------------------------------------------------------------------------


def accelerate(data: Path, work: Path) -> Found:
    found = launch(SIDE, "accelerate_rank", data, work)
    return rows([i for ids in found for i in ids], range(1000))


def accelerate_rank(data: Path, work: Path) -> list[int]:
    from accelerate import Accelerator

    accelerator = Accelerator()
    found = _ids(accelerator.prepare(_made(data / "small", columns=["id"])[0]))
    accelerator.end_training()
    return found


def accelerate_without_dispatch(data: Path, work: Path) -> Found:
    found = launch(SIDE, "accelerate_without_dispatch_rank", data, work)
    return rows([i for ids in found for i in ids], range(1000))


def accelerate_without_dispatch_rank(data: Path, work: Path) -> list[int]:
    from accelerate import Accelerator, DataLoaderConfiguration

    settings = DataLoaderConfiguration(dispatch_batches=False)
    accelerator = Accelerator(dataloader_config=settings)
    found = _ids(accelerator.prepare(_made(data / "small", columns=["id"])[0]))
    accelerator.end_training()
    return found


def _batches_by_rank(place: Path, ranks: int, **given: Any) -> Found:
    found = [sum(1 for _ in loader) for loader, _ in _ranks(place, ranks, **given)]
    return Found(len(set(found)) == 1, f"{'/'.join(map(str, found))} batches")


def equal_batches(data: Path, work: Path) -> Found:
    return _batches_by_rank(data / "small", 3, batch_size=10)


def equal_batches_of_unequal_files(data: Path, work: Path) -> Found:
    return _batches_by_rank(data / "sizes", 2, batch_size=10)


def one_row_group_for_two_ranks(data: Path, work: Path) -> Found:
    return _batches_by_rank(data / "single", 2)


def stripes_of_two_ranks(data: Path, work: Path) -> Found:
    return _batches_by_rank(data / "orc", 2, format="orc")


def balanced_by_size(data: Path, work: Path) -> Found:
    found = [i for loader, _ in _ranks(data / "small", 2) for i in _ids(loader)]
    return rows(found, range(1000))


# --- epochs and order -----------------------------------------------------------------------------


def epochs_of_living_workers(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "small", num_workers=2, persistent_workers=True, shuffle=True)
    orders = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        orders.append(_ids(loader))
    return Found(
        orders[0] != orders[1], "same order" if orders[0] == orders[1] else "another order"
    )


def orders_of_epochs(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "single", shuffle=True)
    first, second = _ids(loader), _ids(loader)
    return Found(first != second, "same order" if first == second else "another order")


def shuffled_within_batches(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", shuffle=True)
    ids = [batch["id"].numpy() for batch in loader]
    rising = sum(float(np.mean(np.diff(one) > 0)) for one in ids) / len(ids)
    return Found(rising < 0.7, f"{rising:.0%} of neighbours in a batch ascend")


def shuffled_over_files(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "rows", shuffle=True)
    seen = [len({int(i) // 1000 for i in batch["id"]}) for batch in loader]
    mean = sum(seen) / len(seen)
    return Found(mean > 5, f"{mean:.1f} of 10 files")


def order_of_files(data: Path, work: Path) -> Found:
    ids = _ids(_made(data / "sizes")[0])
    starts = [str(a) for a, b in zip(ids, [-1, *ids], strict=False) if a != b + 1]
    return Found(ids == list(range(1000)), f"runs that begin at {', '.join(starts) or '0'}")


# --- batches --------------------------------------------------------------------------------------


def exact_batches(data: Path, work: Path) -> Found:
    sizes = [len(batch["id"]) for batch in _made(data / "odd")[0]]
    return Found(set(sizes) == {100}, f"sizes {sizes[:6]} …".replace("[", "").replace("]", ""))


def last_batch(data: Path, work: Path) -> Found:
    return rows(_ids(_made(data / "odd", batch_size=400)[0]), range(1500))


def length(data: Path, work: Path) -> Found:
    found = len(_made(data / "odd")[0])
    return Found(found == 15, str(found))


def loader_options(data: Path, work: Path) -> Found:
    _made(data / "small", num_workers=1, persistent_workers=True, pin_memory=False)
    return Found(True, "taken")


def fixed_lists(data: Path, work: Path) -> Found:
    value = next(iter(_made(data / "types" / "vector.parquet")[0]))["vector"]
    kept = isinstance(value, torch.Tensor)
    return Found(kept, f"{type(value).__name__} of {tuple(value.shape)}")


def times(data: Path, work: Path) -> Found:
    value = next(iter(_made(data / "types" / "time.parquet")[0]))["time"]
    return Found(isinstance(value, torch.Tensor), type(value).__name__)


def missing_ints(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "null_int.parquet", nulls={"n": -1})
    value = next(iter(loader))["n"]
    return Found(int(value[1]) == 2**53 + 1, f"{value.dtype}, {2**53 + 1} is {int(value[1])}")


def missing_unsaid(data: Path, work: Path) -> Found:
    try:
        value = next(iter(_made(data / "types" / "null_int.parquet")[0]))["n"]
    except Exception as error:
        return Found("'n'" in str(error) and "nulls=" in str(error), raised(error))
    return Found(False, f"no error; {value.dtype}")


def missing_bools(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "types" / "null_bool.parquet", nulls="mask")
    batch = next(iter(loader))
    return Found(batch["flag"].dtype == torch.bool, f"read: columns {', '.join(batch)}")


def arrow_batches(data: Path, work: Path) -> Found:
    loader, _ = _made(data / "small", batch_format="arrow")
    return rows((i for batch in loader for i in batch["id"].to_pylist()), range(1000))


def numpy_from_spawned_workers(data: Path, work: Path) -> Found:
    multiprocessing.set_start_method("spawn", force=True)
    return rows(_ids(_made(data / "small", batch_format="numpy", num_workers=1)[0]), range(1000))


# --- files ----------------------------------------------------------------------------------------


def hive_folder(data: Path, work: Path) -> Found:
    return rows(_ids(_made(data / "hive")[0]), range(400))


def hive_columns(data: Path, work: Path) -> Found:
    found = sorted(next(iter(_made(data / "hive")[0])))
    return Found("year" in found, f"columns {', '.join(found)}")


def hive_types(data: Path, work: Path) -> Found:
    value = next(iter(_made(data / "hive")[0]))["year"]
    return Found("int" in str(value.dtype), f"year is {value.dtype}")


def hive_filter(data: Path, work: Path) -> Found:
    return rows(_ids(_made(data / "hive", filters=[("year", "==", 2023)])[0]), range(200, 400))


def hive_unasked(data: Path, work: Path) -> Found:
    found = sorted(next(iter(_made(data / "hive", columns=["id"])[0])))
    return Found(found == ["id"], f"columns {', '.join(found)}")


def _refused(*wanted: str, **given: Any) -> Found:
    try:
        found = sorted(next(iter(_made(given.pop("place"), **given)[0])))
    except Exception as error:
        return Found(all(word in str(error) for word in wanted), raised(error))
    return Found(False, f"no error; columns {', '.join(found)}")


def unknown_column(data: Path, work: Path) -> Found:
    return _refused("labell", place=data / "rows", columns=["id", "labell"])


def nothing_found(data: Path, work: Path) -> Found:
    (work / "empty").mkdir(exist_ok=True)
    return _refused(str(work / "empty"), place=work / "empty")


def unknown_setting(data: Path, work: Path) -> Found:
    return _refused("num_rows", place=data / "rows", num_rows=10)


def json_array(data: Path, work: Path) -> Found:
    return rows(_ids(_made(data / "array" / "a.json", format="json")[0]), range(200))


def memory_of_an_array(data: Path, work: Path) -> Found:
    path = big_array(work)
    return memory_against(path, lambda: next(iter(_made(path, format="json")[0])))


def avro(data: Path, work: Path) -> Found:
    return rows(_ids(_made(data / "avro" / "a.avro", format="avro")[0]), range(200))


# --- the store ------------------------------------------------------------------------------------


def _part(data: Path, work: Path, **given: Any) -> tuple[float, int]:
    whole = (data / "wide" / "a.parquet").stat().st_size
    with WebServer(data) as server, Proxy(server.url) as proxy:
        loader, _ = _made(f"{proxy.url}/wide/a.parquet", local=work / "cache", **given)
        count = len(_ids(loader))
        return proxy.num_bytes / whole, count


def bytes_of_a_column(data: Path, work: Path) -> Found:
    part, _ = _part(data, work, columns=["id"])
    return Found(part < 0.1, f"{part:.0%} of the file's bytes")


def bytes_of_a_filter(data: Path, work: Path) -> Found:
    part, count = _part(data, work, columns=["id"], filters=[("id", "<", 40_000)])
    return Found(part < 0.02, f"{part:.1%} of the file's bytes for {count:,} of 400,000 rows")


def _private(asked: Asked) -> Said | None:
    return None if asked.headers.get("authorization") == "Bearer let-me" else Said(401)


_LET_ME = {"headers": {"Authorization": "Bearer let-me"}}


def footers_of_a_private_store(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_private) as server:
        made = _ranks(
            f"{server.url}/wide/a.parquet",
            2,
            columns=["id"],
            local=work / "cache",
            storage_options=_LET_ME,
        )
        found = [len(_ids(loader)) for loader, _ in made]
    return Found(found[0] == found[1], f"{' and '.join(f'{n:,}' for n in found)} rows on two ranks")


def private_listing(data: Path, work: Path) -> Found:
    with WebServer(data, answer=_private) as server:
        places = [f"{server.url}/rows/part-{at}.parquet" for at in range(10)]
        loader, _ = create_dataloader(
            remote=places, local=work / "cache", storage_options=_LET_ME, batch_size=100
        )
        return rows(_ids(loader), range(10_000))


def footers_in_each_epoch(data: Path, work: Path) -> Found:
    with WebServer(data) as server:
        loader, _ = _made(
            f"{server.url}/wide/a.parquet", local=work / "cache", columns=["id"], shuffle=True
        )
        _ids(loader)
        before = len(server.log)
        loader.set_epoch(1)
        _ids(loader)
        return Found(len(server.log) == before, f"{len(server.log) - before} requests")


def _hurt(data: Path, work: Path, fault: Any, skip: int, place: str, count: int) -> Found:
    with WebServer(data) as server, Proxy(server.url) as proxy:
        rule = proxy.hurt(fault, skip=skip, first=1, methods=["GET"])
        loader, _ = _made(f"{proxy.url}/{place}", local=work / "cache", columns=["id"])
        found = rows(_ids(loader), range(count))
        assert rule.num_done == 1, "the fault has to happen"
        return found


def one_refusal(data: Path, work: Path) -> Found:
    return _hurt(data, work, Status(503), 2, "wide/a.parquet", 400_000)


def cut_in_the_middle(data: Path, work: Path) -> Found:
    return _hurt(data, work, Cut(1000), 3, "wide/a.parquet", 400_000)


def stall(data: Path, work: Path) -> Found:
    return _hurt(data, work, Latency(75.0), 3, "wide/a.parquet", 400_000)


# --- tables ---------------------------------------------------------------------------------------


def deleted_rows(data: Path, work: Path) -> Found:
    return rows(_ids(_table(data, work, "db.deleted")), (i for i in range(10_000) if i % 10))


def rewritten(data: Path, work: Path) -> Found:
    loader = _table(data, work, "db.rewritten")
    catalog = load_catalog("default", **_catalog(data))
    table = catalog.load_table("db.rewritten")
    table.overwrite(table.scan().to_arrow())
    catalog.close()
    return rows(_ids(loader), (i for i in range(10_000) if i % 10))


def renamed(data: Path, work: Path) -> Found:
    found = sorted({tuple(sorted(batch)) for batch in _table(data, work, "db.renamed")})
    return Found(len(found) == 1, " and ".join(f"({', '.join(names)})" for names in found))


def deep_namespace(data: Path, work: Path) -> Found:
    return rows(_ids(_table(data, work, "db.deep.t")), range(100))


def tagged(data: Path, work: Path) -> Found:
    return rows(_ids(_table(data, work, "db.tagged", table={"ref": "v1"})), range(100))


def migrated(data: Path, work: Path) -> Found:
    found = sorted({name for batch in _table(data, work, "db.migrated") for name in batch})
    return Found(found == ["id", "lang"], f"columns {', '.join(found)}")


def mixed_formats(data: Path, work: Path) -> Found:
    return rows(_ids(_table(data, work, "db.mixed")), range(200))


def equality_deletes(data: Path, work: Path) -> Found:
    try:
        loader = _table(data, work, "db.equality")
    except Exception as error:
        return Found("compact" in str(error) or "rewrite" in str(error), raised(error))
    return rows(_ids(loader), (i for i in range(100) if i not in {3, 4}))


def table_without_rows(data: Path, work: Path) -> Found:
    try:
        loader = _table(data, work, "db.empty")
    except Exception as error:
        return Found("empty" in str(error), raised(error))
    return Found(False, f"no error; {len(_ids(loader))} rows")


def pruned_by_a_list(data: Path, work: Path) -> Found:
    given = {"filters": [("id", "in", [100, 150])], "table": {"file_filter": "id in (100, 150)"}}
    return rows(_ids(_table(data, work, "db.pruned", **given)), [100, 150])
