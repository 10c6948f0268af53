"""Scripts that end, or are interrupted, while shards are fetched and written: none hangs."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 120.0
_SAMPLES = 2000
_ESSENTIAL = pytest.mark.essential
_SLOW = pytest.mark.slow

_NEXT = """
dataset = StreamingDataset(remote=remote, local=local, batch_size=4, predownload=1500, **options)
iterator = iter(dataset)
next(iterator)
"""
_BREAK = """
dataset = StreamingDataset(remote=remote, local=local, batch_size=4, predownload=1500, **options)
for _ in dataset:
    break
"""
_BATCHES = """
dataset = StreamingDataset(remote=remote, local=local, batch_size=4, predownload=1500, **options)
batches = dataset.batches()
next(batches)
"""
_WORKERS = """
from streaming_core import StreamingDataLoader
dataset = StreamingDataset(remote=remote, local=local, batch_size=4, predownload=1500, **options)
batches = iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1))
next(batches)
"""
_SCRIPTS = {"next": _NEXT, "break": _BREAK, "batches": _BATCHES, "workers": _WORKERS}
_BEGIN = """
import os, signal, sys, time
from streaming_core import MDSWriter, StreamingDataset
remote, local = sys.argv[1:3]
options = {"cache_limit": 200_000} if sys.argv[3] == "limit" else {}
"""
# A handler that raises, once a moment has come. Python drops what is raised in some places, such as
# the callback of a weak reference, so the signal comes again until it was caught.
_INTERRUPTS = """
import queue, random, threading
rng = random.Random(sys.argv[4])
class Alarm(Exception): pass
def handler(*_): raise (KeyboardInterrupt if sys.argv[5] == "SIGINT" else Alarm)
kind = getattr(signal, sys.argv[5])
signal.signal(kind, handler)
delays = queue.SimpleQueue()
def send():
    while True:
        delay = delays.get()
        while delay is not None:
            try:
                delay = delays.get(timeout=delay)
            except queue.Empty:
                os.kill(os.getpid(), kind)
                delay = 5.0
threading.Thread(target=send, daemon=True).start()
caught = 0
"""
# Goes on after each interrupt with the same folder, and tells how often it was interrupted.
_READ_INTERRUPTED = f"""{_INTERRUPTS}
while caught < int(sys.argv[6]):
    dataset = None
    try:
        dataset = StreamingDataset(remote=remote, local=local, batch_size=4, **options)
        delays.put(rng.uniform(1e-5, 0.05))
        while True:
            for sample in dataset: pass
            dataset.evict_coldest_shard()
    except (KeyboardInterrupt, Alarm) as error:
        delays.put(None)
        kept = error  # with its traceback, as notebooks keep it
        caught += 1
dataset = StreamingDataset(remote=remote, local=local, **options)
assert [dataset[i]["id"] for i in range(len(dataset))] == list(range(len(dataset)))
print(caught)
"""
_WRITE_INTERRUPTED = f"""{_INTERRUPTS}
while caught < int(sys.argv[6]):
    try:
        delays.put(rng.uniform(1e-5, 0.02))
        while True:
            with MDSWriter(
                out=local, columns={{"id": "int"}}, size_limit=2000, exist_ok=True
            ) as writer:
                for number in range(500): writer.write({{"id": number}})
    except (KeyboardInterrupt, Alarm) as error:
        delays.put(None)
        kept = error
        caught += 1
with MDSWriter(out=local, columns={{"id": "int"}}, exist_ok=True) as writer:
    writer.write({{"id": 1}})
print(caught)
"""
# What Python prints where it drops what a handler raised.
_DROPPED = re.compile(
    r"Exception ignored in: .*\nTraceback .*\n(?:  .*\n|\n)*(?:Alarm|KeyboardInterrupt): ?\n"
)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a compressed data set of many shards."""
    folder = tmp_path_factory.mktemp("remote")
    columns = {"id": "int", "x": "bytes"}
    with MDSWriter(out=folder, columns=columns, compression="zstd", size_limit=20_000) as writer:
        for number in range(_SAMPLES):
            writer.write({"id": number, "x": number.to_bytes(4, "little") * 75})
    return folder


def _run(script: str, *arguments: Any) -> str:
    command = [sys.executable, "-c", _BEGIN + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    told = _DROPPED.sub("", done.stderr).splitlines()
    assert (done.returncode, [line for line in told if "resume=True" not in line]) == (0, [])
    return done.stdout


def _locked_files(folder: Path) -> list[Path]:
    locked = []
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append(path)
        finally:
            os.close(handle)
    return locked


def _ids(dataset: StreamingDataset) -> list[int]:
    return [dataset[number]["id"] for number in range(len(dataset))]


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "limit", "times"),
    [
        pytest.param("next", "none", 3, marks=_ESSENTIAL),
        *(
            pytest.param(script, limit, 5 if script == "workers" else 25, marks=_SLOW)
            for script in _SCRIPTS
            for limit in ("none", "limit")
        ),
    ],
)
def test_a_script_may_end_while_shards_are_fetched(
    remote: Path, tmp_path: Path, script: str, limit: str, times: int
) -> None:
    """Its last line leaves an iterator in the middle: it ends at once, and others read on."""
    for turn in range(times):
        local = tmp_path / str(turn)
        _run(_SCRIPTS[script], remote, local, limit)
        assert _locked_files(local) == []
        if turn % 10 == 0:
            assert _ids(StreamingDataset(remote=remote, local=local)) == [*range(_SAMPLES)]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("script", ["next", "workers"])
@pytest.mark.parametrize("limit", ["none", "limit"])
def test_a_script_may_be_interrupted_at_any_moment(
    remote: Path, tmp_path: Path, script: str, limit: str
) -> None:
    """SIGINT ends it; no lock remains, and others read on."""
    rng = random.Random(script + limit)  # noqa: S311
    for turn in range(13):
        local = tmp_path / str(turn)
        code = _BEGIN + _SCRIPTS[script] + "\nfor _ in range(9**9): next(iterator)"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(remote), str(local), limit],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                process.wait(rng.uniform(0.3, 2.0))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=_SECONDS)
        assert _locked_files(local) == [] if local.exists() else True
        assert _ids(StreamingDataset(remote=remote, local=local)) == [*range(_SAMPLES)]


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "limit", "times"),
    [
        pytest.param("SIGALRM", "limit", 5, marks=_ESSENTIAL),
        *(
            pytest.param(kind, limit, 50, marks=_SLOW)
            for kind in ("SIGINT", "SIGALRM")
            for limit in ("none", "limit")
        ),
    ],
)
def test_a_process_goes_on_reading_after_interrupts(
    remote: Path, tmp_path: Path, kind: str, limit: str, times: int
) -> None:
    """Each interrupt is caught and its traceback kept; the same folder serves the next reader."""
    local = tmp_path / "local"
    assert _run(_READ_INTERRUPTED, remote, local, limit, 7, kind, times) == f"{times}\n"
    assert _locked_files(local) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "times"),
    [
        pytest.param("SIGALRM", 5, marks=_ESSENTIAL),
        pytest.param("SIGALRM", 100, marks=_SLOW),
        pytest.param("SIGINT", 100, marks=_SLOW),
    ],
)
def test_a_process_goes_on_writing_after_interrupts(tmp_path: Path, kind: str, times: int) -> None:
    """Another writer begins in the same folder at once."""
    out = tmp_path / "out"
    assert _run(_WRITE_INTERRUPTED, "", out, "none", 7, kind, times) == f"{times}\n"
    assert _locked_files(out) == []
