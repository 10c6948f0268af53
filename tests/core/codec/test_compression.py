"""What the compressions promise for data that are whole."""

from __future__ import annotations

import bz2
import gzip
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core._codec import Compression, _zstd, compressions, digests, parse_compression
from streaming_core.errors import DecompressionError, MissingExtraError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODES = ("br", "bz2", "gz", "snappy", "zstd")
TEXT = b"the same words again and again, " * 40
STEP = 7


def named(text: str) -> Compression:
    """Return the compression `text`, which must exist."""
    compression = parse_compression(text)
    assert compression is not None
    return compression


def streamed(compression: Compression, data: bytes, size: int, step: int = STEP) -> bytes:
    """Expand `data` by the streaming form, `step` bytes at a time."""
    chunks = (data[at : at + step] for at in range(0, len(data), step))
    return b"".join(compression.decompress_stream(chunks, size))


def read_brotli(data: bytes) -> bytes:
    """Expand by the Brotli package, as another reader would."""
    brotli: Any = pytest.importorskip("brotli")
    return bytes(brotli.decompress(data))


def read_snappy(data: bytes) -> bytes:
    """Expand by python-snappy, as another reader would."""
    snappy: Any = pytest.importorskip("snappy")
    return bytes(snappy.decompress(data))


READERS: dict[str, Callable[[bytes], bytes]] = {
    "br": read_brotli,
    "bz2": bz2.decompress,
    "gz": gzip.decompress,
    "snappy": read_snappy,
    "zstd": zstandard.decompress,
}


def test_the_58_names_are_those_of_the_format() -> None:
    """Every family is there with all its levels, and nothing else."""
    expected = {"br", "bz2", "gz", "snappy", "zstd"}
    for code, levels in (("br", range(12)), ("bz2", range(1, 10)), ("gz", range(10))):
        expected |= {f"{code}:{level}" for level in levels}
    expected |= {f"zstd:{level}" for level in range(1, 23)}
    assert set(compressions()) == expected
    assert len(compressions()) == 58


@pytest.mark.parametrize(
    ("text", "level"), [("br", 11), ("bz2", 9), ("gz", 9), ("zstd", 3), ("zstd:22", 22)]
)
def test_a_name_says_family_level_and_extension(text: str, level: int) -> None:
    """A plain code means its family's default level; the extension is the code alone."""
    compression = named(text)
    assert (compression.text, compression.level) == (text, level)
    assert compression.extension == compression.code == text.partition(":")[0]
    assert pickle.loads(pickle.dumps(compression)) == compression


def test_none_means_no_compression() -> None:
    """None passes through, as the index writes null."""
    assert parse_compression(None) is None


@pytest.mark.parametrize(
    "text",
    ["", "zip", "zstd:", "zstd:0", "zstd:23", "zstd:03", "zstd: 3", "ZSTD", "snappy:1", "br:12"],
)
def test_other_names_are_refused_with_the_valid_ones(text: str) -> None:
    """A name that the reference does not know would make an unreadable index."""
    with pytest.raises(SchemaError, match=r"zstd\[:1-22\]") as caught:
        parse_compression(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", compressions())
@settings(max_examples=examples(15))
@given(data=st.one_of(st.binary(max_size=600), st.binary(max_size=9).map(lambda part: part * 99)))
def test_every_name_round_trips(text: str, data: bytes) -> None:
    """What goes in comes out, whole or in small chunks, and other tools read it too."""
    compression = named(text)
    packed = compression.compress([data])
    assert compression.decompress(packed, len(data)) == data
    assert streamed(compression, packed, len(data)) == data
    assert READERS[compression.code](packed) == data


@pytest.mark.parametrize("text", CODES)
@settings(max_examples=examples(25))
@given(parts=st.lists(st.binary(max_size=200), max_size=6))
def test_the_result_does_not_depend_on_how_the_input_is_cut(text: str, parts: list[bytes]) -> None:
    """Equal data give equal files, however the writer holds them, and whenever it runs."""
    compression = named(text)
    assert compression.compress(parts) == compression.compress([b"".join(parts)])


@pytest.mark.parametrize("text", CODES)
def test_buffers_of_any_shape_and_type_count_as_their_bytes(text: str) -> None:
    """Arrays go in without a copy to bytes; empty ones add nothing."""
    array = np.arange(600, dtype=np.uint16).reshape(20, 30)
    compression = named(text)
    packed = compression.compress([array.data, np.empty((0, 3)).data, bytearray(b"xy")])
    expected = array.tobytes() + b"xy"
    assert compression.decompress(memoryview(packed), len(expected)) == expected


def test_gzip_carries_no_time() -> None:
    """The time stamp that makes the reference's gzip files differ between runs is zero."""
    assert named("gz").compress([TEXT])[4:8] == bytes(4)


@pytest.mark.parametrize("limit", [None, 100])
def test_zstd_writes_one_frame_that_declares_its_size(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers can check and allocate before they expand, for shards beyond one call's limit too."""
    if limit is not None:
        monkeypatch.setattr(_zstd, "_ONE_CALL_BYTES", limit)
        monkeypatch.setattr(_zstd, "_CHUNK_BYTES", 64)
    for data in (TEXT, bytes(1000), bytes(range(256)) * 3):
        packed = named("zstd").compress([data[:300], data[300:]])
        assert zstandard.frame_content_size(packed) == len(data)
        decompressor = zstandard.ZstdDecompressor()
        assert decompressor.decompress(packed, allow_extra_data=False) == data
        assert named("zstd").decompress(packed, len(data)) == data


def test_threads_do_not_disturb_each_other() -> None:
    """Contexts are reused per thread, so levels mixed over threads give the same bytes as alone."""
    jobs = [(text, bytes([n]) * 5000 + TEXT) for n in range(12) for text in ("zstd:1", "zstd:9")]
    alone = [named(text).compress([data]) for text, data in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: named(job[0]).compress([job[1]]), jobs))
    assert together == alone


@pytest.mark.parametrize("text", ["bz2", "gz", "zstd"])
def test_several_members_in_a_row_are_one_stream(text: str) -> None:
    """Files joined by `cat`, or written by parallel tools, expand as those tools expand them."""
    compression = named(text)
    packed = b"".join(compression.compress([part]) for part in (TEXT, b"", b"end"))
    expected = TEXT + b"end"
    if text != "zstd":  # whose package expands the first frame only
        assert READERS[text](packed) == expected
    assert compression.decompress(packed, len(expected)) == expected
    assert streamed(compression, packed, len(expected)) == expected


@pytest.mark.parametrize("code", ["br", "snappy"])
def test_an_extra_that_is_missing_is_named(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the error says what to install."""
    for module in ("brotli", "cramjam", "snappy"):
        monkeypatch.setitem(sys.modules, module, None)
    extra = {"br": "brotli", "snappy": "snappy"}[code]
    with pytest.raises(MissingExtraError, match=rf"streaming-core\[{extra}\]"):
        named(code).compress([b"x"])
    with pytest.raises(MissingExtraError, match=rf"streaming-core\[{extra}\]"):
        named(code).decompress(b"\x01\x00x", 1)


@pytest.mark.parametrize("text", CODES)
def test_stream_pieces_are_bounded_and_come_as_soon_as_they_can(text: str) -> None:
    """A reader that hashes and writes piece by piece holds a few MiB, not a shard."""
    size = 24 << 20
    level = {"br": "br:1", "bz2": "bz2:1", "gz": "gz:1"}.get(text, text)
    packed = named(level).compress([bytes(size)])
    pieces = [len(piece) for piece in named(text).decompress_stream([packed], size)]
    assert sum(pieces) == size
    if text != "snappy":  # whose blocks cannot be read in part
        assert max(pieces) <= 4 << 20


@pytest.mark.parametrize("text", ["br:1", "bz2:1", "gz:1", "snappy", "zstd", "zstd:19"])
def test_data_of_many_blocks_stream_in_any_chunks(text: str) -> None:
    """Chunks end anywhere in a format's blocks; noise, text and zeros all come through."""
    noise = np.random.default_rng(0).bytes(600_000)
    expected = noise + TEXT * 400 + bytes(1_500_000) + noise[::-1]
    packed = named(text).compress([expected])
    for step in (1009, 100_003, 1 << 20):
        assert streamed(named(text), packed, len(expected), step) == expected, step
    assert named(text).decompress(packed, len(expected)) == expected


def test_a_stream_takes_no_chunk_before_it_must() -> None:
    """What the first chunk holds comes out before the second is asked for."""
    noise = np.random.default_rng(0).bytes(3 << 20)
    packed = named("zstd").compress([noise])
    half = len(packed) // 2
    taken: list[int] = []

    def chunks() -> Any:
        for at in (0, half):
            taken.append(at)
            yield packed[at : at + half]

    pieces = named("zstd").decompress_stream(chunks(), len(noise))
    assert noise.startswith(next(pieces))
    assert taken == [0]


def test_errors_name_the_file() -> None:
    """The caller's name for the data leads the message."""
    with pytest.raises(DecompressionError, match=r"^shard\.00003\.mds\.gz: the gz data"):
        named("gz").decompress(b"junk", 4, where="shard.00003.mds.gz")


@pytest.mark.parametrize("name", ["mds_br", "mds_bz2", "mds_gz", "mds_snappy", "mds_zstd"])
def test_shards_of_the_reference_expand_to_what_their_index_says(golden: Path, name: str) -> None:
    """Compressed data sets of mosaicml-streaming read back, whole and streamed."""
    shards = json.loads((golden / name / "index.json").read_bytes())["shards"]
    assert len(shards) > 1
    for shard in shards:
        packed = (golden / name / shard["zip_data"]["basename"]).read_bytes()
        assert len(packed) == shard["zip_data"]["bytes"]
        size = shard["raw_data"]["bytes"]
        raw = named(shard["compression"]).decompress(packed, size)
        assert int.from_bytes(raw[:4], "little") == shard["samples"]
        assert streamed(named(shard["compression"]), packed, size, step=100) == raw


def test_hashes_of_the_reference_agree(golden: Path) -> None:
    """Digests of raw and compressed files equal those that mosaicml-streaming recorded."""
    folder = golden / "mds_hashed"
    for shard in json.loads((folder / "index.json").read_bytes())["shards"]:
        packed = (folder / shard["zip_data"]["basename"]).read_bytes()
        raw = named(shard["compression"]).decompress(packed, shard["raw_data"]["bytes"])
        assert shard["raw_data"]["hashes"]
        assert digests(shard["hashes"], [raw]) == shard["raw_data"]["hashes"]
        assert digests(shard["hashes"], [packed]) == shard["zip_data"]["hashes"]


def test_zstd_windows_stay_within_what_the_library_can_be_told() -> None:
    """Content beyond 2 GiB can be decompressed by steps too."""
    codec = parse_compression("zstd")
    assert codec is not None
    packed = codec.compress([b"x" * 1000])
    with pytest.raises(DecompressionError, match="1000"):
        list(codec.decompress_stream([packed], 3 << 30))
