"""An index as bytes, and back; and how processes of one machine share it."""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
import os
import pickle
from multiprocessing import context
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core._store import LocalStore, MemoryStore
from streaming_core._virtual import (
    Decoder,
    Scan,
    SourceFile,
    Unit,
    View,
    VirtualIndex,
    build_index,
    dump,
    parse,
)
from streaming_core._virtual._filed import Filed, digest_of
from streaming_core._virtual._index_file import filed_index
from streaming_core._virtual._keep import Keep, dump_keep, filed_keep, parse_keep
from streaming_core.errors import IndexInvalidError

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._store import Store


def _filled(count: int, store: Store | None = None) -> tuple[Store, list[SourceFile]]:
    store = MemoryStore() if store is None else store
    files: list[SourceFile] = []
    for at in range(count):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": np.arange(at, at + 3), "t": ["x"] * 3}), sink)
        info = store.put(f"{at:05d}.parquet", [sink.getvalue()])
        files.append(SourceFile(info.key, info.size, info.etag, (("y", str(at % 3)),)))
    return store, files


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 4)), max_size=12))
def test_an_index_is_the_same_as_bytes_and_back(files: list[tuple[bytes, int]]) -> None:
    """Whatever formats note of their files."""
    sources = [SourceFile(f"ü/{at}", at, str(at), (("k", None),)) for at in range(len(files))]
    scans = [
        Scan(
            pa.schema([pa.field(f"c{count}", pa.int8())]),
            tuple(Unit(1 + at, 5, -at, 1 << 40) for at in range(count)),
            meta,
        )
        for meta, count in files
    ]
    index = VirtualIndex.of("tar", {"a": [1, None]}, sources, scans)
    again = parse(dump(index), "x")
    assert dump(again) == dump(index)
    assert [again.file(at) for at in range(len(files))] == sources
    assert [again.scan(at) for at in range(len(files))] == scans
    sizes = [len(scan.units) for scan in scans]
    assert again.ordinals.tolist() == [at for size in sizes for at in range(size)]


@given(st.data())
def test_a_damaged_index_is_an_error_or_shows(draw: st.DataObject) -> None:
    """Never a crash."""
    data = bytearray(dump(_three()))
    if draw.draw(st.booleans()):
        del data[draw.draw(st.integers(0, len(data) - 1)) :]
    else:
        for _ in range(draw.draw(st.integers(1, 3))):
            data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        index = parse(bytes(data), "there")
        for at in range(index.num_files):
            index.meta(at)
    except IndexInvalidError:
        pass


@functools.cache
def _three() -> VirtualIndex:
    return build_index(*_filled(3), kind_name="parquet")


def test_an_index_of_many_files_is_small() -> None:
    """What files say much alike is not kept for each anew."""
    store, files = _filled(400)
    index = build_index(store, files, "parquet")
    plain = sum(len(index.meta(at)) for at in range(400))
    assert len(dump(index)) < plain / 3


# --- workers --------------------------------------------------------------------------------------


def _filed(folder: Path, data: bytes, load: Any, name: str = "kept") -> Filed:
    path = folder / name
    path.write_bytes(data)
    return Filed(str(path), digest_of(data), load)


def test_a_starting_worker_is_sent_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While any other pickle, or one where the file is gone, has all of it."""
    store, files = _filled(300)
    data = dump(build_index(store, files, "parquet"))
    index = filed_index(_filed(tmp_path, data, filed_index))
    folder = tmp_path / "keep"
    folder.mkdir()
    kept = dump_keep(Keep.of({at: np.packbits([at % 2, 1, 0]).tobytes() for at in range(300)}))
    keep = filed_keep(_filed(folder, kept, filed_keep))
    decoder = Decoder(index, LocalStore(tmp_path), View(), keep)
    assert len(pickle.dumps(decoder)) > len(data)
    monkeypatch.setattr(context, "get_spawning_popen", object)
    monkeypatch.setattr("streaming_core._virtual._filed.get_spawning_popen", object)
    small = pickle.dumps(decoder)
    assert len(small) < 4000
    again = pickle.loads(small)
    assert again.table().samples.tolist() == decoder.table().samples.tolist()
    assert dump(again._index) == data
    (tmp_path / "kept").unlink()
    whole = pickle.dumps(decoder)
    assert len(whole) > len(data)
    assert dump(pickle.loads(whole)._index) == data


def _rows(decoder: Decoder, name: str, results: Any) -> None:
    results.put(pa.ipc.open_file(pa.py_buffer(decoder.made(name, None))).read_all().num_rows)


@pytest.mark.process
@pytest.mark.essential
def test_a_spawned_process_reads_by_it(tmp_path: Path) -> None:
    """With the index mapped from the file."""
    store, files = _filled(5, LocalStore(tmp_path / "data"))
    data = dump(build_index(store, files, "parquet"))
    decoder = Decoder(filed_index(_filed(tmp_path, data, filed_index)), store, View(("id",)))
    spawning = multiprocessing.get_context("spawn")
    results = spawning.Queue()
    name = decoder.table().basenames("raw")[2]
    process = spawning.Process(target=_rows, args=(decoder, name, results))
    process.start()
    process.join(200)
    assert process.exitcode == 0
    assert results.get(timeout=60) == 3


def test_a_file_that_is_another_is_refused(tmp_path: Path) -> None:
    """Before anything of it is taken."""
    store, files = _filled(2)
    data = dump(build_index(store, files, "parquet"))
    filed = _filed(tmp_path, data, filed_index)
    (tmp_path / "kept").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(IndexInvalidError, match="other bytes"):
        filed_index(filed)
    (tmp_path / "kept").write_bytes(b"")
    with pytest.raises(IndexInvalidError):
        filed_index(filed)


def test_a_file_that_is_cut_while_it_is_used_is_an_error(tmp_path: Path) -> None:
    """Reading what is mapped of it would end the process."""
    store, files = _filled(2)
    index = filed_index(_filed(tmp_path, dump(build_index(store, files, "parquet")), filed_index))
    os.truncate(tmp_path / "kept", 0)
    bits = Keep.of({unit: bytes(100) for unit in range(20)})
    keep = filed_keep(_filed(tmp_path, dump_keep(bits), filed_keep, "bits"))
    os.truncate(tmp_path / "bits", 0)
    with pytest.raises(IndexInvalidError, match="was cut while it was in use"):
        index.meta(1)
    with pytest.raises(IndexInvalidError, match="was cut while it was in use"):
        keep[19]


def test_names_that_are_no_units_are_none() -> None:
    """Whatever they look like."""
    store, files = _filled(2)
    decoder = Decoder(build_index(store, files, "parquet"), store, View())
    names = list(decoder.table().basenames("raw"))
    assert [decoder._unit_of(name) for name in names] == [0, 1]
    stem = names[0].partition(".")[0]
    for bad in ("", "x", f"{stem}.0000001.arrow", f"{'0' * 24}.0000000.arrow", f"{stem}.x.arrow"):
        with pytest.raises(KeyError):
            decoder._unit_of(bad)


# --- rows that are kept ---------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 1 << 40), st.binary(max_size=9), max_size=9))
def test_kept_rows_are_the_same_as_bytes_and_back(bits: dict[int, bytes]) -> None:
    """And counted."""
    keep = parse_keep(dump_keep(Keep.of(bits)), "x")
    assert dict(keep) == bits
    wanted = [sum(byte.bit_count() for byte in bits[unit]) for unit in sorted(bits)]
    assert keep.samples.tolist() == wanted
    assert dict(pickle.loads(pickle.dumps(keep))) == bits


@given(st.data())
def test_damaged_kept_rows_are_an_error_or_show(draw: st.DataObject) -> None:
    """Never a crash."""
    data = bytearray(dump_keep(Keep.of({3: b"\x80", 9: b"", 12: b"\xf0\xff"})))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with contextlib.suppress(IndexInvalidError):
        dict(parse_keep(bytes(data), "there"))
