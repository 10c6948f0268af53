"""Without what only Linux has, everything still works: as on macOS, where no test runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_WITHOUT = """
import errno, fcntl, mmap, multiprocessing, os, select, socket, sys, tempfile
import numpy, pyarrow.parquet, torch.utils.data

names = {
    os: "memfd_create MFD_CLOEXEC posix_fallocate posix_fadvise preadv pwritev copy_file_range "
        "splice eventfd getrandom sched_getaffinity O_DIRECT O_PATH O_NOATIME",
    mmap: "MAP_POPULATE MADV_NOHUGEPAGE MADV_HUGEPAGE MADV_DONTFORK MADV_POPULATE_READ",
    select: "epoll",
    socket: "TCP_USER_TIMEOUT TCP_KEEPIDLE TCP_QUICKACK SO_PEERCRED MSG_MORE AF_NETLINK",
    errno: "EREMOTEIO EUCLEAN ENOMEDIUM EKEYEXPIRED",
    fcntl: "F_ADD_SEALS F_OFD_SETLK F_SETPIPE_SZ",
}
for module, gone in names.items():
    for name in gone.split():
        if hasattr(module, name):
            delattr(module, name)
real_open, real_stat = open, os.stat

def no_proc(path):
    if isinstance(path, str) and path.startswith("/proc/"):
        raise FileNotFoundError(errno.ENOENT, "there is none", path)

def without_open(path, *given, **options):
    no_proc(path)
    return real_open(path, *given, **options)

def without_stat(path, *given, **options):
    no_proc(path)
    return real_stat(path, *given, **options)

import builtins
builtins.open, os.stat = without_open, without_stat
fcntl.F_FULLFSYNC = 51  # which this system refuses, as some file systems do
sys.platform = "darwin"
"""

_USE = """
from pathlib import Path
from streaming_core import (
    LocalDataset, MDSWriter, StreamingDataLoader, StreamingDataset, create_dataloader
)

def use(folder, workers):
    with MDSWriter(
        out=folder / "data", columns={"x": "int"}, size_limit=1000, compression="zstd"
    ) as writer:
        for x in range(400):
            writer.write({"x": x})
    assert len(list(LocalDataset(folder / "data"))) == 400
    dataset = StreamingDataset(
        remote=folder / "data", local=folder / "local", batch_size=8, shuffle=True,
        cache_limit="20kb", predownload=16,
    )
    loader = StreamingDataLoader(dataset, 8, num_workers=workers)
    for _ in range(2):
        assert sorted(x for batch in loader for x in batch["x"].tolist()) == list(range(400))
    assert len(loader.state_dict()) > 4
    table = pyarrow.table({"x": list(range(400))})
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=50)
    decoded, _ = create_dataloader(
        folder / "a.parquet", batch_size=8, num_workers=workers, local=folder / "decoded"
    )
    assert len(list(decoded)) == 50
    print("used")

use(Path(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.process
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.essential)])
def test_nothing_that_only_linux_has_is_needed(tmp_path: Path, workers: int) -> None:
    """Neither calls and flags nor files below /proc, to write, to read and to load."""
    command = [sys.executable, "-c", _WITHOUT + _USE, str(tmp_path), str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "used\n"), done.stderr
