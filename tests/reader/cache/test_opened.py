"""What a process keeps mapped: within its descriptors, within the limit, noted once."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

import pytest
from tests.reader.cache.making import expected, ids, make

from streaming_reader._cache import CacheGroup
from streaming_reader._cache._opened import Opened, Together, mappings_allowed

_SHARD = cast("Any", object())


def _deleted_bytes(folder: Path) -> int:
    """Return the bytes of files below a folder that are mapped here and have no name any more."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(folder) in line and line.endswith("(deleted)"):
            first, last = re.split(r"[- ]", line)[:2]
            total += int(last, 16) - int(first, 16)
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_what_is_evicted_does_not_stay_mapped(tmp_path: Path) -> None:
    """Under a limit, evicted files give their room back to the disk; all shards are right."""
    made = make(tmp_path / "remote")
    local = tmp_path / "local"
    cache = made.cache(local, group=CacheGroup(made.largest * 4 + 4096))
    for shard in list(range(made.num_shards)) * 2:
        assert ids(cache.open(shard)) == expected(made, shard)
        assert not _deleted_bytes(local)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_what_another_evicts_is_unmapped_at_the_next_fetch(tmp_path: Path) -> None:
    """A file that lost its name elsewhere is forgotten as soon as this process fetches."""
    made = make(tmp_path / "remote")
    group = CacheGroup("1mb")
    cache = made.cache(tmp_path / "local", group=group)
    other = made.cache(tmp_path / "local", group=CacheGroup("1mb"))
    for shard in range(6):
        cache.open(shard)
    for shard in range(6):
        other.evict(shard)
    assert _deleted_bytes(tmp_path / "local")
    cache.open(7)
    assert not _deleted_bytes(tmp_path / "local")


def test_caches_of_a_group_keep_an_eighth_of_the_limit_mapped() -> None:
    """The bytes of all together stay within, whichever was used last stays, two always do."""
    together = Together(100)
    one, two = Opened(50, together), Opened(50, together)
    for number in range(20):
        (one, two)[number % 2].put(number, _SHARD, nbytes=20)
        assert one.nbytes + two.nbytes <= 100
        assert (one, two)[number % 2].get(number) is not None
    one.put(99, _SHARD, nbytes=1000)
    assert len(one) + len(two) == 2


def test_all_caches_of_a_process_share_its_descriptors() -> None:
    """However many caches there are, they keep no more files mapped than one may."""
    caches = [Opened(mappings_allowed()) for _ in range(4)]
    for number in range(mappings_allowed()):
        for cache in caches:
            cache.put(number, _SHARD, files=2)
    assert sum(cache.files for cache in caches) <= mappings_allowed()
    assert all(map(len, caches))


def test_uses_are_told_once() -> None:
    """Each use is noted once, that of a dropped shard too, and what was not used again never."""
    opened = Opened(3)
    for number in range(3):
        opened.put(number, _SHARD)
    assert set(opened.news()) == {0, 1, 2}
    assert opened.news() == {}
    opened.get(0)
    opened.put(4, _SHARD)  # drops 1
    opened.get(2)
    assert set(opened.news()) == {0, 2, 4}


_MANY_STREAMS = """
    import os, resource, sys
    from pathlib import Path
    from tests.reader.cache.making import expected, ids, make
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    top = Path(sys.argv[1])
    made = make(top / "remote")
    caches = [made.cache(top / f"local-{at}") for at in range(40)]
    for cache in caches:
        for shard in range(made.num_shards):
            assert ids(cache.open(shard)) == expected(made, shard)
    wanted, taken = caches[0], []
    for cache in caches:
        cache.evict(0)
    kept = made.cache(top / "more")
    kept.open(1)
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    assert ids(wanted.open(0)) == expected(made, 0)
    kept.open(2)
    kept.prepare(3)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="mappings cost no descriptors")
def test_many_streams_do_not_run_out_of_descriptors(tmp_path: Path) -> None:
    """Forty caches read with 256 descriptors, and even when others have taken all that are left."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64
    code = textwrap.dedent(_MANY_STREAMS)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
