"""What decompression does with data that are cut, changed, or made to harm."""

from __future__ import annotations

import bz2
import gzip
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from streaming_core._codec import Compression, parse_compression
from streaming_core.errors import DecompressionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODES = ("br", "bz2", "gz", "snappy", "zstd")
DATA = b"one two three, one two three, " * 4 + bytes(range(40))
GIB = 1 << 30


def named(text: str) -> Compression:
    """Return the compression `text`, which must exist."""
    compression = parse_compression(text)
    assert compression is not None
    return compression


def outcome(expand: Callable[[], bytes]) -> bytes | None:
    """Return what comes out, or None where it is refused; any other exception is the test's."""
    try:
        return expand()
    except DecompressionError:
        return None


def both(compression: Compression, data: bytes, size: int) -> bytes | None:
    """Return the outcome of `data`, which must be the same for every way to hand it over."""
    bytewise = [data[at : at + 1] for at in range(len(data))]
    results = [
        outcome(lambda: compression.decompress(data, size)),
        outcome(lambda: b"".join(compression.decompress_stream([data], size))),
        outcome(lambda: b"".join(compression.decompress_stream(bytewise, size))),
    ]
    assert results[0] == results[1] == results[2]
    return results[0]


def zstd_checksummed(data: bytes) -> bytes:
    """Return a frame with a checksum after the last block."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def zstd_unsized(data: bytes) -> bytes:
    """Return a frame that does not declare its size, flushed so that its last block is empty."""
    stream = zstandard.ZstdCompressor().compressobj()
    parts = [stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()]
    return b"".join(parts)


SAMPLES = {
    **{code: (code, named(code).compress([DATA])) for code in CODES},
    "zstd with checksum": ("zstd", zstd_checksummed(DATA)),
    "zstd without size": ("zstd", zstd_unsized(DATA)),
    "zstd in two frames": ("zstd", zstd_checksummed(DATA[:50]) + zstd_unsized(DATA[50:])),
}
per_sample = pytest.mark.parametrize(("code", "packed"), SAMPLES.values(), ids=SAMPLES)


@per_sample
def test_whole_data_are_accepted(code: str, packed: bytes) -> None:
    """The samples that the other tests damage are good."""
    assert both(named(code), packed, len(DATA)) == DATA


@per_sample
def test_data_cut_anywhere_are_refused(code: str, packed: bytes) -> None:
    """A download that broke off is never taken for whole, not even when only a checksum lacks."""
    accepted = [
        end for end in range(len(packed)) if both(named(code), packed[:end], len(DATA)) is not None
    ]
    assert accepted == []


@per_sample
def test_data_that_go_on_are_refused(code: str, packed: bytes) -> None:
    """Bytes after the end mean that this is another file."""
    for extra in (b"\0", b"x", b"\0" * 20, b"garbage", packed[:1], packed[:5]):
        assert both(named(code), packed + extra, len(DATA)) is None


@per_sample
def test_another_size_is_refused(code: str, packed: bytes) -> None:
    """Too much and too little are errors, be it by one byte."""
    for size in (0, 1, len(DATA) - 1, len(DATA) + 1, 1 << 40):
        assert both(named(code), packed, size) is None


@per_sample
def test_a_flipped_bit_is_refused_or_keeps_the_size(code: str, packed: bytes) -> None:
    """No damage gives another error, another size, or an outcome that depends on the chunks.

    Not every format has a checksum; what stays of the right size is for the hashes of the index.
    """
    refused = 0
    for bit in range(8 * len(packed)):
        changed = bytearray(packed)
        changed[bit // 8] ^= 1 << bit % 8
        data = both(named(code), bytes(changed), len(DATA))
        refused += data is None
        assert data is None or len(data) == len(DATA)
    assert refused > len(packed) // 2


@pytest.mark.parametrize("code", CODES)
def test_nothing_and_noise_are_refused(code: str) -> None:
    """An empty file, or one of another kind, is no compressed data."""
    for data in (b"", b"\x01", b"\xff" * 64, b"<html>not found</html>", DATA):
        for size in (0, 1, len(DATA)):
            assert both(named(code), data, size) is None


def test_a_broken_checksum_is_refused() -> None:
    """gzip, bzip2 and checksummed zstd notice changed content themselves."""
    for code, packed in (
        ("gz", gzip.compress(DATA, 0, mtime=0)),
        ("zstd", zstd_checksummed(DATA)),
        ("bz2", bz2.compress(DATA)),
    ):
        at = {"gz": -8, "zstd": -1, "bz2": 10}[code]
        changed = bytearray(packed)
        changed[at] ^= 1
        assert both(named(code), bytes(changed), len(DATA)) is None


@pytest.mark.parametrize("code", ["br", "snappy"])
def test_formats_without_members_take_one_only(code: str) -> None:
    """The tools of these formats expand no joined files, so neither does this."""
    packed = named(code).compress([DATA])
    assert both(named(code), packed + packed, 2 * len(DATA)) is None


@pytest.mark.parametrize("levels", [(-5, 1), pytest.param((19, 22), marks=pytest.mark.slow)])
def test_zstd_frames_of_other_tools_are_accepted(levels: tuple[int, ...]) -> None:
    """Skippable frames, long windows and every level read back, sized or not."""
    skippable = bytes.fromhex("5e2a4d18") + (5).to_bytes(4, "little") + b"notes"
    one = zstandard.ZstdCompressor().compress(DATA)
    zstd = named("zstd")
    for packed in (skippable + one, one + skippable, skippable + zstd_unsized(DATA) + skippable):
        assert both(zstd, packed, len(DATA)) == DATA
    for level in levels:
        stream = zstandard.ZstdCompressor(level=level).compressobj()
        assert both(zstd, stream.compress(DATA) + stream.flush(), len(DATA)) == DATA
    assert both(zstd, skippable, 0) == b""
    assert both(zstd, skippable[:-1], 0) is None


def test_a_zstd_window_beyond_any_use_is_refused() -> None:
    """A frame of few bytes cannot make a reader reserve gigabytes."""
    parameters = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(DATA) + stream.flush()
    with pytest.raises(DecompressionError, match=r"window|memory"):
        named("zstd").decompress(packed, len(DATA))


def zstd_bomb(declared: int | None) -> bytes:
    """Return a frame of 1 GiB of zeros in 32 KiB that declares another size, or none."""
    head = "28b52ffd00" if declared is None else "28b52ffdc0"
    window = b"\x58"  # 2 MiB
    size = b"" if declared is None else declared.to_bytes(8, "little")
    block = (1 << 17 << 3 | 2).to_bytes(3, "little") + b"\0"
    last = (1 << 17 << 3 | 3).to_bytes(3, "little") + b"\0"
    return bytes.fromhex(head) + window + size + block * 8191 + last


def gzip_bomb() -> bytes:
    """Return a member of 1 GiB of zeros; a part that ends in a full flush can be repeated."""
    stream = zlib.compressobj(9, wbits=31)
    head = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    part = stream.compress(bytes(16 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    return head + part * 64


def brotli_bomb() -> bytes:
    """Return a stream of 1 GiB of zeros."""
    brotli: Any = pytest.importorskip("brotli")
    stream = brotli.Compressor(quality=2)
    part = bytes(64 << 20)
    return b"".join([*(stream.process(part) for _ in range(16)), stream.finish()])


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zstd": ("zstd", lambda: zstd_bomb(None)),
    "zstd that declares the size expected": ("zstd", lambda: zstd_bomb(1 << 20)),
    "zstd that declares less": ("zstd", lambda: zstd_bomb(5)),
    "zstd that declares an exabyte": ("zstd", lambda: zstd_bomb(1 << 60)),
    "gz": ("gz", gzip_bomb),
    "bz2": ("bz2", lambda: bz2.compress(bytes(16 << 20)) * 64),
    "br": ("br", brotli_bomb),
    "snappy that declares 4 GiB": ("snappy", lambda: bytes.fromhex("ffffffff0f") + b"\0" * 100),
    "snappy that declares 2 TiB": ("snappy", lambda: bytes.fromhex("ffffffffff7f") + b"\0" * 100),
}

# Expands each file named on stdin in a process of its own, where memory is short: what it holds
# after the imports, and a little more.
IN_LITTLE_MEMORY = """
import os, resource, sys, time
from pathlib import Path
from streaming_core._codec import parse_compression
from streaming_core.errors import DecompressionError

def run(name, code, size, room):
    data = Path(name).read_bytes()
    compression = parse_compression(code)
    tiny = compression.compress([b"x"])
    compression.decompress(tiny, 1)  # imports what it needs
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + room, held + room))
    chunks = lambda: (data[at : at + 65536] for at in range(0, len(data), 65536))
    for expand in (
        lambda: len(compression.decompress(data, size)),
        lambda: sum(map(len, compression.decompress_stream(chunks(), size))),
    ):
        start = time.process_time()
        try:
            result = str(expand())
        except DecompressionError:
            result = "refused"
        print(name, result, time.process_time() - start, flush=True)

for line in sys.stdin.read().splitlines():
    name, code, size, room = line.split()
    child = os.fork()
    if not child:
        try:
            run(name, code, int(size), int(room))
        except BaseException as error:
            print(name, type(error).__name__, "inf", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def in_child(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that expands files in processes of little memory."""
    linux = pytest.mark.skipif(sys.platform != "linux", reason="limits by RLIMIT_AS and /proc")
    marked: Callable[..., None] = pytest.mark.process(linux(test))
    return marked


def in_little_memory(
    folder: Path, files: dict[str, tuple[str, bytes]], size: int, room: int
) -> dict[str, list[tuple[str, float]]]:
    """Return outcome and processor seconds of both forms, with `room` bytes of memory to spare."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for number, (label, (code, packed)) in enumerate(files.items()):
        path = folder / str(number)
        path.write_bytes(packed)
        names[str(path)] = label
        lines.append(f"{path} {code} {size} {room}\n")
    run = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY],
        input="".join(lines),
        text=True,
        capture_output=True,
        check=False,
        timeout=280,
    )
    assert (run.returncode, run.stderr) == (0, "")
    found: dict[str, list[tuple[str, float]]] = {label: [] for label in files}
    for line in run.stdout.splitlines():
        name, result, seconds = line.split()
        found[names[name]].append((result, float(seconds)))
    return found


@in_child
def test_bombs_are_refused_at_once_and_in_little_memory(tmp_path: Path) -> None:
    """1 GiB of zeros where 1 MiB was expected stops near 1 MiB, whatever the header claims."""
    files = {label: (code, make()) for label, (code, make) in BOMBS.items()}
    found = in_little_memory(tmp_path, files, 1 << 20, room=64 << 20)
    outcomes = {label: [result for result, _ in results] for label, results in found.items()}
    assert outcomes == {key: ["refused", "refused"] for key in BOMBS}
    seconds = {label: max(each for _, each in results) for label, results in found.items()}
    assert {label: each for label, each in seconds.items() if each >= 1} == {}


@in_child
def test_a_result_is_held_once(tmp_path: Path) -> None:
    """Expanding 64 MiB takes little more memory than 64 MiB."""
    size = 64 << 20
    texts = ("br:1", "bz2:1", "gz:1", "snappy", "zstd:1")
    files = {text: (text, named(text).compress([bytes(size)])) for text in texts}
    found = in_little_memory(tmp_path, files, size, room=size + size // 8 + (40 << 20))
    outcomes = {text: [result for result, _ in results] for text, results in found.items()}
    assert outcomes == {key: [str(size), str(size)] for key in texts}
