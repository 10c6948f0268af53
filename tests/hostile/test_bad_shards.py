"""Every shard of the corpus gives its own error, at once, in little memory; none runs code."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.core.format.mds.making import key, make_shard, opened
from tests.hostile.measure import judged
from tests.hostile.shards import OPENING, RECORDS, SAMPLES, VALUES, Case, good

from streaming_core.errors import ShardCorruptError, UnsafeEncodingError

ROOT = Path(__file__).parents[2]


def named(cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrise a test by the cases."""
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def test_the_shard_that_is_made_bad_is_good() -> None:
    """Without the change, every sample comes back."""
    assert key(list(opened(*good()))) == key(SAMPLES)


@named(OPENING)
def test_bad_headers_are_refused_on_opening(case: Case) -> None:
    """Nothing of the shard is decoded before its header fits the index, the file and itself."""
    error = judged(lambda: opened(case.info, case.raw), len(case.raw))
    assert type(error) is case.error
    assert re.search(case.text, str(error))


@named(RECORDS + VALUES)
def test_bad_samples_are_refused_with_their_place(case: Case) -> None:
    """The error says which byte, sample and column is broken, what was wanted and what came."""
    shard = opened(case.info, case.raw)
    error = judged(lambda: shard.row(0), len(case.raw))
    assert type(error) is case.error
    assert re.search(case.text, str(error))
    start = len(case.raw) - len(shard.record(0))
    assert str(error).startswith(f"shard.00007.mds, byte {start}: sample 0: ")
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_good_samples_beside_a_bad_one_are_read() -> None:
    """Only the broken sample is an error."""
    info, raw = make_shard({"x": "str"}, [{"x": "a"}, {"x": b"\xff"}, {"x": "c"}])
    shard = opened(info, raw)
    assert [shard[0], shard[2]] == [{"x": "a"}, {"x": "c"}]
    with pytest.raises(ShardCorruptError, match="sample 1: column 'x'"):
        shard.row(1)


class _Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_pickles_do_not_run_unless_allowed(tmp_path: Path) -> None:
    """A shard with a pickled column is not even opened; this pickle does run where allowed."""
    path = tmp_path / "canary"
    data = pickle.dumps(_Canary(str(path)))
    info, raw = make_shard({"x": "pkl", "y": "int"}, [{"x": data, "y": 1}])
    error = judged(lambda: opened(info, raw), len(raw))
    assert type(error) is UnsafeEncodingError
    assert "reading column(s) x can run code" in str(error)
    assert not path.exists()
    opened(info, raw, allow_unsafe=True).row(0)["x"].close()
    assert path.exists()


@pytest.mark.parametrize("data", [b"", b"\x80", b"cnowhere\nnothing\n.", b"(l", b"\x80\x05."])
def test_broken_pickles_are_errors_of_the_shard(data: bytes) -> None:
    """What unpickling raises is not passed on as it is."""
    info, raw = make_shard({"x": "pkl"}, [{"x": data}])
    shard = opened(info, raw, allow_unsafe=True)
    error = judged(lambda: shard.row(0), len(raw))
    assert type(error) is ShardCorruptError
    assert "column 'x': cannot be unpickled" in str(error)


CHILD = """
import resource, sys
from PIL import Image
from tests.hostile.shards import OPENING, RECORDS, VALUES
Image.init()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (48 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for case in OPENING + RECORDS + VALUES:
    try:
        case.run()
    except case.error:
        continue
    sys.exit(f"accepted: {case.name}")
try:
    bytes(64 << 20)
except MemoryError:
    print("all refused")
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's memory limits")
def test_the_corpus_is_refused_under_a_memory_limit() -> None:
    """All libraries together, Pillow's own memory too, need less than 48 MiB for any shard."""
    result = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "all refused\n", "")
