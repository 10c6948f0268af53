"""Small files that would fill the memory: refused at the size that the index promises."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.format.mds.making import info_of, make_shard, opened, packed_by

from streaming_core._index import FileInfo
from streaming_core._read import fetch_shard
from streaming_core._store import LocalStore, MemoryStore
from streaming_core.errors import DecompressionError

ROOT = Path(__file__).parents[2]
LEVELS = {"br": "br:1", "bz2": "bz2:1", "gz": "gz:1", "snappy": "snappy", "zstd": "zstd:1"}
EXPANDED = 64 << 20

CHILD = """
import resource, sys
from tests.hostile.test_bombs import LEVELS, attempt, warm_up
warm_up()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (24 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for code in LEVELS:
    for promised in (1000, 1 << 20):
        print(code, attempt(sys.argv[1], code, promised))
try:
    bytes(32 << 20)
except MemoryError:
    print("limited")
"""


def attempt(folder: str, code: str, promised: int) -> str:
    """Return the class of the error that the bomb of a codec gives, promised to be this large."""
    info, _ = make_shard({"a": "int"}, [{"a": 5}])
    packed = (Path(folder) / f"shard.00007.mds.{code}").read_bytes()
    file = FileInfo(f"shard.00007.mds.{code}", len(packed), {})
    schema = replace(info.schema, compression=LEVELS[code])
    bomb = replace(info, schema=schema, zip=file, raw=replace(info.raw, bytes=promised))
    try:
        fetch_shard(LocalStore(folder), bomb)
    except DecompressionError as error:
        return f"{type(error).__name__} {str(error).split(':', maxsplit=1)[0]}"
    return "accepted"


def warm_up() -> None:
    """Import every codec's library and start what it keeps, before memory is limited."""
    info, raw = make_shard({"a": "int"}, [{"a": 5}])
    for text in LEVELS.values():
        packed = packed_by(text, raw)
        zipped = info_of(replace(info.schema, compression=text), raw, 1, packed)
        store = MemoryStore()
        assert zipped.zip is not None
        store.put(zipped.zip.basename, [packed])
        assert list(fetch_shard(store, zipped)) == list(opened(info, raw)) == [{"a": 5}]


@pytest.mark.process
@pytest.mark.essential
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's memory limits")
def test_bombs_are_refused_under_a_memory_limit(tmp_path: Path) -> None:
    """No codec expands 64 MiB of zeros where the index promises less, in a process of 24 MiB."""
    for code, text in LEVELS.items():
        packed = packed_by(text, bytes(EXPANDED))
        (tmp_path / f"shard.00007.mds.{code}").write_bytes(packed)
        assert len(packed) < EXPANDED // 15
    result = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    wanted = [
        f"{code} DecompressionError shard.00007.mds.{code}" for code in LEVELS for _ in range(2)
    ]
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [*wanted, "limited"]


@pytest.mark.parametrize("text", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("change", [-1, 1, 1 << 31])
def test_another_size_than_promised_is_refused(text: str, change: int) -> None:
    """One byte more or less is another file; a promise of gigabytes is not believed in advance."""
    info, raw = make_shard({"a": "int"}, [{"a": 5}])
    packed = packed_by(text, raw)
    info = info_of(replace(info.schema, compression=text), raw, 1, packed)
    assert info.zip is not None
    store = MemoryStore()
    store.put(info.zip.basename, [packed])
    promised = replace(info, raw=replace(info.raw, bytes=len(raw) + change))
    with pytest.raises(DecompressionError, match=info.zip.basename):
        fetch_shard(store, promised)
