"""How fast samples become a finished data set on a local disk."""

from __future__ import annotations

from _spec import Case, Contender, Scenario, Task

__all__ = ["SCENARIOS"]

_REFERENCE = "mosaicml-streaming"
_LEVELS = (None, "zstd:1", "zstd:3")

_OURS = (
    Contender(
        "streaming-core write",
        "ours",
        "ours",
        "one `write` per sample; files are synced before `finish` returns",
        {"method": "write"},
    ),
    Contender(
        "streaming-core write_batch",
        "ours",
        "ours",
        "`write_batch` of numpy columns or lists of bytes; files are synced",
        {"method": "write_batch"},
    ),
)
_OURS_ARROW = Contender(
    "streaming-core write_batch (Arrow)",
    "ours",
    "ours",
    "`write_batch` of Arrow tables; files are synced",
    {"method": "write_batch_arrow"},
)
_PEERS = (
    Contender(
        _REFERENCE,
        "reference",
        "peers",
        "`MDSWriter`, one `write` per sample, same columns and size limit; does not sync",
    ),
    Contender(
        "litData writer",
        "lit",
        "peers",
        "`BinaryWriter`, the writer under `optimize`, in process; 64 MiB chunks; does not sync",
    ),
    Contender(
        "litData optimize, 2 workers",
        "lit",
        "peers",
        "`optimize` with two forked processes that hold the data already; starting them is "
        "part of the call; 64 MiB chunks; does not sync",
        {"num_workers": 2},
    ),
    Contender(
        "array_record",
        "arrayrecord",
        "peers",
        "groups of 1, its default and the setting for random reads; one file, no schema: the "
        "sample is packed by the caller; does not sync",
        {"group_size": 1},
    ),
)
_ARRAY_RECORD_GROUPS = Contender(
    "array_record, groups of 256",
    "arrayrecord",
    "peers",
    "as above with 256 records to a group, which a random read must decode whole",
    {"group_size": 256},
)
_LANCE = Contender(
    "Lance",
    "lance_table",
    "peers",
    "`write_dataset` from record batches that exist already; one file; does not sync",
)
_LANCE_BINARY = Contender(
    "Lance, binary column",
    "lance_table",
    "peers",
    "as Lance, tokens as binary values: it leaves fixed-size lists uncompressed",
    {"tokens_as": "binary"},
)
_LANCE_BINARY_OLD = Contender(
    "Lance, binary column, format 2.0",
    "lance_table",
    "peers",
    "as above in its older file format, which compresses faster",
    {"tokens_as": "binary", "version": "2.0"},
)
_CEILINGS = tuple(
    Contender(
        f"ceiling: files, {threads}",
        "ceiling",
        "ours",
        "open, write, fsync, close of the same files by number and size as ours; no encoding",
        {"what": "files", "num_threads": num_threads},
    )
    for threads, num_threads in (("1 thread", 1), ("4 threads", 4))
)
_CEILING_ZSTD = Contender(
    "ceiling: zstd alone, 2 threads",
    "ceiling",
    "ours",
    "whole shards compressed in memory by two threads, nothing written",
    {"what": "zstd", "num_threads": 2},
)


def _contenders(work: str, compression: str | None) -> tuple[Contender, ...]:
    chosen = [*_OURS]
    if work == "blobs":
        chosen.append(_OURS_ARROW)
    chosen += _PEERS
    if work != "blobs":
        # Groups make large records slower, which would only flatter the others.
        chosen.append(_ARRAY_RECORD_GROUPS)
    if work != "tokens":
        chosen.append(_LANCE)
    elif compression is None:
        chosen += (_LANCE, _LANCE_BINARY)
    else:
        chosen += (_LANCE_BINARY, _LANCE_BINARY_OLD)
    chosen += _CEILINGS
    if compression is not None and work != "blobs":
        chosen.append(_CEILING_ZSTD)
    return tuple(chosen)


def _cases(work: str, num_samples: int) -> tuple[Case, ...]:
    return tuple(
        Case(Task(work, num_samples, compression), _contenders(work, compression))
        for compression in _LEVELS
    )


def _scenario(work: str, title: str, num_samples: int, num_quick: int) -> Scenario:
    return Scenario(
        name=f"write-{work}",
        title=f"Writing {title}",
        text=(
            "From samples in memory to a finished data set: opening, writing and finishing are "
            "timed, making the data is not. *Once on disk* adds an fsync of whatever the "
            "contender left in the page cache."
        ),
        cases=_cases(work, num_samples),
        quick_cases=_cases(work, num_quick),
        baselines=(_REFERENCE,),
    )


def _cores_cases(num_samples: int) -> tuple[Case, ...]:
    contenders = tuple(
        Contender(
            f"streaming-core, max_workers={num_workers}",
            "ours",
            "ours",
            "`write_batch`, finishing shards in that many threads",
            {"method": "write_batch", "max_workers": num_workers},
        )
        for num_workers in (1, 2, 4)
    )
    return (Case(Task("tokens", num_samples, "zstd:3"), (*contenders, _CEILING_ZSTD)),)


SCENARIOS = (
    _scenario("ints", "small samples", 1_000_000, 2_000),
    _scenario("tokens", "token sequences", 100_000, 200),
    _scenario("blobs", "large binary samples", 20_000, 20),
    Scenario(
        name="write-cores",
        title="Compression over cores",
        text="Whether more threads finish compressed shards sooner, up to the cores there are.",
        cases=_cores_cases(100_000),
        quick_cases=_cores_cases(200),
        baselines=("streaming-core, max_workers=1",),
    ),
)
