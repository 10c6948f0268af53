"""Looking at many files: side by side, each once, in bounded memory."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.waiting import until

from streaming_core._store import MemoryStore
from streaming_core._virtual import (
    SourceFile,
    VirtualIndex,
    build_index,
    dump,
)
from streaming_core._virtual._build import Changes, changes_since
from streaming_core.errors import SourceFormatError, StoreError
from streaming_core.testing import Fault, FaultStore, Raise

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._store import Store

_STALL: Final = 5.0
_MOST_ALONE: Final = 4


def _footed(number: int, rows: int = 3) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(number, number + rows), "t": ["x"] * rows}), sink)
    return sink.getvalue()


def _filled(count: int, store: Store | None = None) -> tuple[Store, list[SourceFile]]:
    store = MemoryStore() if store is None else store
    infos = [store.put(f"y={at % 3}/{at:05d}.parquet", [_footed(at)]) for at in range(count)]
    files = [
        SourceFile(info.key, info.size, info.etag, (("y", info.key[2]),))
        for info in sorted(infos, key=lambda info: info.key)
    ]
    return store, files


class _Counting(FaultStore):
    """Knows which files were asked for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    def get_ranges(self, key: str, ranges: Any) -> Any:
        self.keys.append(key)
        return super().get_ranges(key, ranges)


class _Together(_Counting):
    """Answers when so many requests wait for it, or all that are left.

    Where the first file is asked for last, because its thread had to wait for a processor, no more
    may be asked for before it is answered. So it is, after a while.
    """

    def __init__(self, inner: Store, at_once: int, total: int) -> None:
        super().__init__(inner)
        self.num_alone = 0
        """How many were answered although too few waited."""
        self._at_once = at_once
        self._left = total
        self._waiting: set[str] = set()
        self._changed = threading.Condition()

    def get_ranges(self, key: str, ranges: Any) -> Any:
        with self._changed:
            self._waiting.add(key)
            if len(self._waiting) >= min(self._at_once, self._left):
                self._answer_all()
            while not self._changed.wait_for(lambda: key not in self._waiting, _STALL):
                if key == min(self._waiting):
                    self.num_alone += 1
                    if self.num_alone > _MOST_ALONE:
                        self._at_once = 1  # it has failed, and need not wait
                    self._answer_all()
        return super().get_ranges(key, ranges)

    def _answer_all(self) -> None:
        self._left -= len(self._waiting)
        self._waiting.clear()
        self._changed.notify_all()


def test_files_are_looked_at_side_by_side_each_with_one_request() -> None:
    """At least twenty at a time, up to the last, so that a distant store costs a twentieth."""
    store, files = _filled(320)
    distant = _Together(store, at_once=20, total=320)
    index = build_index(distant, files, "parquet")
    assert distant.num_alone <= _MOST_ALONE
    assert sorted(distant.keys) == [file.key for file in files]
    assert index.num_samples == 3 * 320
    assert [index.file(at) for at in range(len(files))] == files


def test_what_is_known_is_not_looked_at_again() -> None:
    """Only added and replaced files are, and the result is as if all had been."""
    store, files = _filled(50)
    known = build_index(store, files, "parquet")
    key = files[7].key
    info = store.put(key, [_footed(1000, 5)])
    files[7] = SourceFile(key, info.size, info.etag, files[7].constants)
    del files[20]
    added = store.put("y=9/a.parquet", [_footed(2000)])
    files.append(SourceFile(added.key, added.size, added.etag, (("y", "9"),)))
    counting = _Counting(store)
    index = build_index(counting, files, "parquet", known=known)
    assert sorted(counting.keys) == sorted([key, "y=9/a.parquet"])
    fresh = build_index(store, files, "parquet")
    assert index.stems.tobytes() == fresh.stems.tobytes()
    for name in ("samples", "numbers", "parts", "files", "schema_ids", "meta_sizes"):
        assert np.array_equal(getattr(index, name), getattr(fresh, name)), name
    assert [index.meta(at) for at in range(50)] == [fresh.meta(at) for at in range(50)]
    assert dump(build_index(store, files, "parquet", known=index)) == dump(index)


def test_another_format_or_options_make_known_files_unknown() -> None:
    """What was found depends on both."""
    store, files = _filled(3)
    known = build_index(store, files, "parquet")
    other = VirtualIndex.of("csv", {}, files, [known.scan(at) for at in range(3)])
    counting = _Counting(store)
    build_index(counting, files, "parquet", known=other)
    assert len(counting.keys) == 3


def test_files_without_versions_are_looked_at_again() -> None:
    """They may be others of the same size."""
    store, files = _filled(3)
    bare = [SourceFile(file.key, file.size, "") for file in files]
    known = build_index(store, bare, "parquet")
    counting = _Counting(store)
    build_index(counting, bare, "parquet", known=known)
    assert len(counting.keys) == 3


def test_a_store_that_fails_once_is_asked_again() -> None:
    """And one broken file ends it, with its name, in no time."""
    store, files = _filled(40)
    faulty = FaultStore(store, [Fault(Raise(StoreError("reset")), verb="get_ranges", nth=3)])
    assert build_index(faulty, files, "parquet").num_samples == 120
    store.put(files[4].key, [b"PAR1" + bytes(100) + b"PAR2"])
    info = store.head(files[4].key)
    files[4] = SourceFile(info.key, info.size, info.etag)
    with pytest.raises(SourceFormatError, match=files[4].key):
        build_index(store, files, "parquet")
    # One that was just being started finds nothing to do.
    until(lambda: all(one.name != "streaming-request" for one in threading.enumerate()))


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 2), st.sampled_from(" 12"))
    ),
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 2), st.sampled_from(" 12"))
    ),
)
def test_changes_are_told(
    before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]
) -> None:
    """Added, removed, replaced; by size, or by version where both are known."""

    def files(of: dict[str, tuple[int, str]]) -> list[SourceFile]:
        return [SourceFile(key, size, etag.strip()) for key, (size, etag) in sorted(of.items())]

    index = VirtualIndex.of("parquet", {}, files(before), [_empty_scan()] * len(before))
    found = changes_since(index, files(after))
    both = before.keys() & after.keys()
    replaced = {
        key
        for key in both
        if before[key][0] != after[key][0]
        or (" " not in (before[key][1], after[key][1]) and before[key][1] != after[key][1])
    }
    assert found == Changes(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        tuple(sorted(replaced)),
    )


def _empty_scan() -> Any:
    from streaming_core._virtual import Scan

    return Scan(pa.schema([]), ())


_SCRIPT = """
import resource, sys, time
import pyarrow.parquet
from streaming_core._store import Parts
from streaming_core._virtual import SourceFile, build_index, dump, parse

footed = open(sys.argv[1], "rb").read()

class Same:
    url = "memory://same"
    def get_ranges(self, key, ranges):
        return Parts([footed[a:b] for a, b in ranges], key)

files = [SourceFile(f"d/{at:06d}.parquet", len(footed), f"d/{at:06d}.parquet")
         for at in range(int(sys.argv[2]))]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index = build_index(Same(), files, "parquet")
data = dump(index)
parse(data, "x")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(data))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_memory_grows_with_the_index_not_with_what_was_looked_at(tmp_path: Path) -> None:
    """The footers of 3,000 files more would take 130 megabytes more."""
    path = tmp_path / "one.parquet"
    names = [f"{'column' * 60}_{at}" for at in range(30)]  # quick to parse for their bytes
    pq.write_table(pa.table({name: [float(at)] for at, name in enumerate(names)}), path)
    assert path.stat().st_size * 3000 > 130e6

    def measured(count: int) -> tuple[int, int]:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(path), str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        kilobytes, index_bytes = map(int, done.stdout.split())
        return kilobytes * 1024, index_bytes

    (few, little), (many, much) = measured(1000), measured(4000)
    assert much - little < 30e6
    assert many - few < 90e6, (few, many)
