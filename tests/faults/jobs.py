"""Conversions that the fault tests start, kill, and go on with; imported by their processes too."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming_core import MDSWriter, load_index, open_store
from streaming_core._codec import digest
from streaming_core._read import SUM_ALGORITHM, SUMS, iterate_samples, parse_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["BASE", "COLUMNS", "JOBS", "SAMPLES", "Job", "Tree", "check_consistent", "tree"]

COLUMNS = {"id": "int", "text": "str"}
SAMPLES: list[dict[str, Any]] = [{"id": i, "text": f"text {i} " * (i % 7)} for i in range(96)]
BASE: list[dict[str, Any]] = [{"id": -i, "text": "base"} for i in range(40)]
_CHUNK = 9

Tree = dict[str, bytes | None]
"""Every file below a folder with its bytes, and every folder with None."""


@dataclass(frozen=True, slots=True)
class Job:
    """One way to convert `SAMPLES`; every run goes on where the last one stopped."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    size_limit: int = 400
    batches: bool = False
    pair: bool = False

    @property
    def appends(self) -> bool:
        """Whether there is a data set before."""
        return bool(self.options.get("append"))

    def folders(self, root: Path) -> list[Path]:
        """Return the folders that hold the data set in the end."""
        if self.pair:
            return [root / "first", root / "second"]
        return [root / "out" / "part-00003" if "part" in self.options else root / "out"]

    def prepare(self, root: Path) -> None:
        """Make the folder, and write the data set that is appended to."""
        root.mkdir()
        if self.appends:
            with MDSWriter(
                out=root / "out", columns=COLUMNS, size_limit=self.size_limit, checksums=True
            ) as out:
                out.write_batch(_columns(BASE))

    def run(self, root: Path, tick: Callable[[], object] = lambda: None) -> int:
        """Convert what is left, calling `tick` before each write; return how many were safe."""
        out: Any = (root / "first", root / "second") if self.pair else root / "out"
        given: dict[str, Any] = {"max_workers": 2, "keep_local": self.pair, "resume": True}
        given |= {"checksums": True}
        given |= self.options
        with MDSWriter(out=out, columns=COLUMNS, size_limit=self.size_limit, **given) as writer:
            tick()
            safe = writer.num_safe_samples
            step = _CHUNK if self.batches else 1
            for start in range(safe, len(SAMPLES), step):
                if self.batches:
                    writer.write_batch(_columns(SAMPLES[start : start + step]))
                else:
                    writer.write(SAMPLES[start])
                tick()
        return safe

    def is_over(self, root: Path, wanted: Tree) -> bool:
        """Tell whether an append needs no other run: one more would append once more."""
        out = root / "out"
        return (
            self.appends
            and (out / "index.json").read_bytes() == wanted["out/index.json"]
            and not (out / ".writing/settings.json").exists()
        )


JOBS = {
    job.name: job
    for job in (
        Job("rows"),
        Job("rows-zstd", {"compression": "zstd:1"}),
        Job("batches", batches=True),
        Job("batches-zstd", {"compression": "zstd:1", "hashes": ["sha1"]}, batches=True),
        Job("append", {"append": True}),
        Job("part", {"part": 3}),
        Job("pair", pair=True),
        # Few calls of the system in a fixed order, so that each can be made to fail in turn.
        Job("small", {"max_workers": 1}, size_limit=1500),
        Job("small-append", {"max_workers": 1, "append": True}, size_limit=1500),
        Job(
            "small-anew",
            {"max_workers": 1, "resume": False, "exist_ok": True},
            size_limit=1500,
        ),
        Job("small-pair", {"max_workers": 1}, size_limit=1500, pair=True),
    )
}


def _columns(samples: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [sample[name] for sample in samples] for name in COLUMNS}


def tree(root: Path) -> Tree:
    """Return everything below `root`, hidden files and empty folders included."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def check_consistent(job: Job, root: Path, before: Tree, wanted: Tree) -> None:
    """Assert that what stands under its final name is whole, whatever happened to the writer.

    The conversion is deterministic, so each shard, sums file and index must have the bytes of the
    uninterrupted run (`wanted`) or, when appending, of the data set before it (`before`).
    """
    for name, data in tree(root).items():
        base = name.rpartition("/")[2]
        if base.startswith("shard.") or base in {"index.json", SUMS}:
            assert data is not None
            assert data in (before.get(name, b""), wanted[name]), f"{name} is neither old nor new"
    for folder in job.folders(root):
        _check_notes(folder)
        if (folder / "index.json").exists():
            _check_index(job, folder)
        else:
            assert not job.appends, f"{folder}: the old index is gone"


def _check_notes(folder: Path) -> None:
    """Assert that every shard that the journal names is there, whole."""
    for note in folder.glob(".writing/[0-9]*.json"):
        for name, wanted in json.loads(note.read_bytes())["sums"].items():
            assert digest(SUM_ALGORITHM, [(folder / name).read_bytes()]) == wanted, name


def _check_index(job: Job, folder: Path) -> None:
    """Assert that every shard that the index names is there, whole, and reads back."""
    store, table = open_store(folder), load_index(folder)
    sums = parse_sums(store.get(SUMS))
    for i in range(table.num_shards):
        file = table.shard(i).zip or table.shard(i).raw
        assert digest(SUM_ALGORITHM, [store.get(file.basename)]) == sums[file.basename]
    ways = [[*BASE], [*BASE, *SAMPLES]] if job.appends else [SAMPLES]
    assert list(iterate_samples(store, table)) in ways
