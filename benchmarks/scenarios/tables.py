"""How fast rows come out of Parquet files that nobody converted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from _spec import Case, Contender, Scenario, Task
from scenarios.read import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SCENARIOS"]

_SIZES = (4_000_000, 40_000)
_UTILS = "torch-dataloader-utils"
_HF = "HF datasets"
_RAY = "Ray Data"
_CEILING = "pyarrow alone"
_FILES = (
    "Files of a million rows in one row group each, zstd, local and in the page cache; batches of "
    "1,024 rows."
)


def _contender(name: str, module: str, note: str, method: str, **options: str) -> Contender:
    ours = module in {"table_ours", "table_ceiling"}
    environment: Literal["ours", "tables"] = "ours" if ours else "tables"
    return Contender(name, module, environment, note, {"method": method, **options})


def _ours(method: str, format: str = "arrow", name: str = OURS, **options: str) -> Contender:
    shuffle = "" if method in {"scan", "samples"} else ", shuffled through all files"
    note = f"`batch_format={format!r}`{shuffle}"
    return _contender(name, "table_ours", note, method, format=format, **options)


def _scan() -> Scenario:
    contenders = (
        _ours("scan"),
        _ours("scan", "numpy", f"{OURS}, numpy"),
        _contender(_UTILS, "table_dataloader_utils", '`output_format="arrow"`', "scan"),
        _contender(
            f"{_UTILS}, torch", "table_dataloader_utils", "as by default", "scan", format="torch"
        ),
        _contender(_HF, "table_hf", '`with_format("arrow").iter(1024)`', "scan"),
        _contender(_RAY, "table_ray", '`iter_batches(batch_format="pyarrow")`', "scan"),
        _contender(_CEILING, "table_ceiling", "`iter_batches` of each file, one thread", "scan"),
    )
    return _scenario(
        "scan",
        "Parquet in order, by batches",
        "In one process, epoch after epoch: ours decodes once and then has the rows in its cache.",
        contenders,
    )


def _shuffled() -> Scenario:
    return _scenario(
        "shuffled",
        "Parquet shuffled, by batches",
        "In one process (Ray's tasks have their own), epoch after epoch: ours decodes once.",
        (
            _ours("batches"),
            _ours("batches", "numpy", f"{OURS}, numpy"),
            _ours("batches", "arrow", f"{OURS}, windowed", shuffle_algo="windowed"),
            *_shuffling(),
            _contender(
                _CEILING,
                "table_ceiling",
                "`RecordBatch.take` from the decoded table in memory, by numbers permuted before",
                "batches",
            ),
        ),
    )


def _shuffling() -> tuple[Contender, ...]:
    return (
        _contender(
            _UTILS,
            "table_dataloader_utils",
            "`shuffle=True`, rows within a buffer of 10,000",
            "batches",
        ),
        _contender(_HF, "table_hf", "`shuffle(buffer_size=10_000)`, Arrow", "batches"),
        _contender(_RAY, "table_ray", "`local_shuffle_buffer_size=100_000`", "batches"),
        _contender(
            f"{_RAY}, random_shuffle", "table_ray", "shuffles all rows", "batches", shuffle="global"
        ),
    )


def _cold() -> Scenario:
    """Return what a new process with nothing decoded sees: one epoch, opening included."""
    contenders = (
        _ours("batches"),
        _ours("scan", name=f"{OURS}, in order"),
        *_shuffling(),
        _contender(f"{_HF}, in order", "table_hf", '`with_format("arrow")`', "scan"),
    )
    full, quick = (Task("rows", size, most_seconds=300.0) for size in _SIZES)
    return Scenario(
        name="parquet-cold",
        title="A first epoch over Parquet",
        text=(
            "From opening, in a new process that has imported all it needs and with an empty "
            f"cache, to the last of all batches. {_FILES}"
        ),
        cases=(Case(full, contenders, fresh=True),),
        quick_cases=(Case(quick, contenders, fresh=True),),
        baselines=(_UTILS, _HF, _RAY),
        metric="read",
    )


def _rows() -> Scenario:
    return _scenario(
        "rows",
        "Parquet in order, row by row",
        "A loop over rows as dicts, in one process.",
        (
            _ours("samples"),
            _contender(
                _UTILS, "table_dataloader_utils", "`to_pylist` of its Arrow batches", "samples"
            ),
            _contender(_HF, "table_hf", "`for row in dataset`", "samples"),
            _contender(_RAY, "table_ray", "`iter_rows()`", "samples"),
            _contender(_CEILING, "table_ceiling", "`iter_batches` and `to_pylist`", "samples"),
        ),
    )


def _loader() -> Scenario:
    return _scenario(
        "loader",
        "Parquet shuffled, from two worker processes",
        "Workers are started once a run, and stay for its epochs.",
        (
            _ours("loader", "torch"),
            _ours("loader", "arrow", f"{OURS}, arrow"),
            _contender(
                _UTILS,
                "table_dataloader_utils",
                "`shuffle=True`, rows within a buffer of 10,000, tensors",
                "loader",
                format="torch",
            ),
            _contender(
                _HF, "table_hf", "`shuffle(buffer_size=10_000)`, torch's `DataLoader`", "loader"
            ),
        ),
        num_workers=2,
        most_seconds=30.0,
    )


def _index() -> Scenario:
    contenders = (
        Contender(OURS, "index_ours", "ours", "opening a data set of the files by their names"),
        Contender(
            "pyarrow, one by one",
            "index_footers",
            "ours",
            "`parquet.read_metadata` of each file through its S3 client",
            {"client": "pyarrow"},
        ),
        Contender(
            "fsspec, one by one",
            "index_footers",
            "tables",
            "`parquet.read_metadata` of each file through fsspec's HTTP files",
            {"client": "fsspec"},
        ),
    )
    full, quick = (Task("rows", size, latency_ms=40) for size in (1_000_000, 20_000))
    return Scenario(
        name="parquet-index",
        title="Indexing a thousand Parquet files",
        text=(
            "Seconds until the number of rows in each file is known, over a network: files of a "
            "thousand rows. The store is nginx on the same machine, which answers after 40 ms."
        ),
        cases=(Case(full, contenders, fresh=True),),
        quick_cases=(Case(quick, contenders, fresh=True),),
        baselines=("pyarrow, one by one", "fsspec, one by one"),
        metric="seconds",
    )


def _scenario(
    name: str,
    title: str,
    text: str,
    contenders: Sequence[Contender],
    *,
    num_workers: int = 0,
    most_seconds: float = 10.0,
) -> Scenario:
    size, small = _SIZES
    full = Task("rows", size, num_workers=num_workers, least_seconds=3.0, most_seconds=most_seconds)
    quick = replace(full, num_samples=small, least_seconds=0.0)
    names = [contender.name for contender in contenders]
    return Scenario(
        name=f"parquet-{name}",
        title=title,
        text=f"{text} {_FILES}",
        cases=(Case(full, tuple(contenders)),),
        quick_cases=(Case(quick, tuple(contenders)),),
        baselines=tuple(known for known in (_UTILS, _HF, _RAY, _CEILING) if known in names),
        metric="read",
    )


SCENARIOS = (_scan(), _shuffled(), _cold(), _rows(), _loader(), _index())
