"""Fixtures of the writer: conversions that were killed, and datasets that were finished."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.compat.jobs import convert
from tests.compat.making import run_killed, settled
from tests.compat.rows import digest, file_digests, samples

import streaming_core
from streaming_core import MDSWriter, merge_index

__all__ = ["make_conversions", "make_datasets"]

_COLUMNS: Final = {"id": "int", "text": "str"}
_LINES: Final = {"id": "int", "text": "str"}


def _case(writer: str = "MDSWriter", **more: Any) -> dict[str, Any]:
    options = {"size_limit": 4000, "max_workers": 2, "resume": True, **more.pop("options", {})}
    case = {"writer": writer, "columns": _COLUMNS, "samples": [0, 160], "stop": 110}
    return {**case, "options": options, **more}


_CASES: Final[dict[str, dict[str, Any]]] = {
    "mds": _case(),
    "mds-before-first-shard": _case(stop=3),
    "mds-at-full-speed": _case(samples=[0, 800], stop=400, settle=False),
    "mds-batches": _case(batch=7),
    "mds-zstd-hashes": _case(options={"compression": "zstd:3", "hashes": ["sha1", "xxh64"]}),
    "mds-gz": _case(options={"compression": "gz"}),
    "mds-append": _case(options={"append": True}, samples=[60, 160], base=[0, 60], stop=120),
    "mds-part": _case(options={"part": 3}),
    "mds-named-part": _case(options={"part": "validation"}),
    "json": _case("JSONWriter", columns=_LINES),
    "json-zstd": _case("JSONWriter", columns=_LINES, options={"compression": "zstd:3"}),
    "csv": _case("CSVWriter", columns=_LINES, options={"hashes": ["sha1"]}),
    "tsv": _case("TSVWriter", columns=_LINES),
}


def _prepare(case: dict[str, Any], out: Path) -> None:
    if "base" in case:
        options = {**case["options"], "append": False, "resume": False}
        convert({**case, "samples": case["base"], "options": options}, out)


def make_conversions(folder: Path) -> dict[str, Any]:
    """Kill conversions in their middle, and note what comes of those that were not."""
    expected: dict[str, Any] = {}
    for name, case in deepcopy(_CASES).items():
        out = folder / name
        _prepare(case, out)
        job = {"job": "convert", "settings": case, "out": str(out), "stop": case["stop"]}
        if case.pop("settle", True):
            run_killed(job, "written", settled(out))
        else:
            run_killed(job, "written")
        with tempfile.TemporaryDirectory() as temporary:
            whole = Path(temporary) / "out"
            _prepare(case, whole)
            convert(case, whole)
            expected[name] = {"settings": case, "files": file_digests(whole)}
    # Parts of one dataset, of which one is finished and one is not.
    parts = folder / "parts"
    for part in (0, 1):
        case = _case(
            options={"part": part}, samples=[part * 80, part * 80 + 80], stop=part * 80 + 50
        )
        if part == 0:
            convert(case, parts)
        else:
            job = {"job": "convert", "settings": case, "out": str(parts), "stop": case["stop"]}
            run_killed(job, "written", settled(parts))
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "out"
        for part in (0, 1):
            convert(
                {
                    **case,
                    "options": {**case["options"], "part": part},
                    "samples": [part * 80, part * 80 + 80],
                },
                whole,
            )
        merge_index(whole)
        expected["parts"] = {"settings": case, "files": file_digests(whole)}
    return {"cases": expected}


def _values(number: int) -> dict[str, Any]:
    whole = {f"{kind}{bits}": number for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
    floats = {f"float{bits}": number / 4 for bits in (16, 32, 64)}
    return {
        **whole,
        **floats,
        "bytes": bytes([number, 255, 0]),
        "str": f"größe {number}",
        "int": -number,
        "str_int": 10**30 + number,
        "str_float": number / 8,
        "str_decimal": Decimal(number) / 8,
        "json": {"number": number, "list": [None, True, "x"]},
        "ndarray": np.arange(number % 5, dtype=np.int16),
        "ndarray:float32": np.full((2, number % 3 + 1), number / 2, np.float32),
        "ndarray:uint8:2,3": np.full((2, 3), number, np.uint8),
    }


def make_datasets(folder: Path) -> dict[str, Any]:
    """Write finished datasets: all encodings, other formats, merged parts, with sums."""
    columns = {f"column {name}": name for name in _values(0)}
    with MDSWriter(out=folder / "encodings", columns=columns, size_limit=3000) as out:
        for number in range(24):
            out.write({f"column {name}": value for name, value in _values(number).items()})
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "mds-zstd": ("MDSWriter", {"compression": "zstd:3", "hashes": ["sha1", "xxh64"]}),
        "mds-raw": ("MDSWriter", {}),
        "json": ("JSONWriter", {"hashes": ["xxh3_64"]}),
        "csv": ("CSVWriter", {}),
        "tsv": ("TSVWriter", {"compression": "gz"}),
    }
    settings: dict[str, Any] = {}
    for name, (writer, more) in kinds.items():
        options = {"size_limit": 4000, **more}
        settings[name] = {
            "writer": writer,
            "columns": _COLUMNS,
            "options": options,
            "num_samples": 50,
        }
        with getattr(streaming_core, writer)(out=folder / name, columns=_COLUMNS, **options) as out:
            for row in samples(0, 50):
                out.write(row)
    for part in range(3):
        with MDSWriter(out=folder / "merged", columns=_COLUMNS, part=part, size_limit=4000) as out:
            for row in samples(part * 20, part * 20 + 20):
                out.write(row)
    merge_index(folder / "merged")
    expected: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        # Compressed shards are decompressed by a cache only.
        streamed = streaming_core.StreamingDataset(
            remote=path, local=path.parent.parent / "read" / path.name, batch_size=8
        )
        rows = [streamed[at] for at in range(streamed.size)]
        given = settings.get(path.name)
        expected[path.name] = {
            "num_samples": len(rows),
            "rows": digest(rows),
            "append": given,
            "in_place": given is None or "compression" not in given["options"],
        }
    return {"cases": expected}
