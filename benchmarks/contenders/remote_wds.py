"""webdataset on tar files behind the same web server, unshuffled. Options: see `_remote`."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import webdataset
from _reading import BATCH_SIZES
from _remote import BUCKET, Served, timed
from _truth import shared_data, truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]

_NAME = "tokens.bin"


class _Source:
    distributions: tuple[str, ...] = ("webdataset", "numpy", "torch")

    def __init__(self, urls: list[str], task: Task) -> None:
        self._urls = urls
        self._batch_size = BATCH_SIZES[task.work]

    def loader(self, local: Path, num_workers: int) -> Iterable[Mapping[str, Any]]:
        del local  # it keeps nothing
        dataset = (
            webdataset.WebDataset(self._urls, shardshuffle=False)
            .map(lambda sample: {"tokens": np.frombuffer(sample[_NAME], np.uint16)})
            .batched(self._batch_size)
        )
        return webdataset.WebLoader(dataset, batch_size=None, num_workers=num_workers)


def _write(work: Work, out: Path) -> None:
    """Write tar files of as many samples as fit into a shard."""
    out.mkdir()
    tar: tarfile.TarFile | None = None
    written = 0
    for number, sample in enumerate(work.samples()):
        if tar is None or written >= work.shard_bytes:
            if tar is not None:
                tar.close()
            tar = tarfile.open(out / f"shard.{number:08d}.tar", "w")  # noqa: SIM115 - closed here
            written = 0
        data = sample["tokens"].tobytes()
        entry = tarfile.TarInfo(f"{number:08d}.{_NAME}")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
        written += len(data)
    if tar is not None:
        tar.close()


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the tar files; serve them."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "tar", _write)
    served = Served(shared, task.latency_ms or 0)
    names = sorted(path.name for path in folder.iterdir())
    urls = [f"{served.endpoint}/{BUCKET}/{folder.name}/{name}" for name in names]
    return timed(task, options["method"], _Source(urls, task), truth, served)
