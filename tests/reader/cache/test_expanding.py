"""Compressed files that expand to something else than the index says: little of it is stored."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from tests.reader.cache.making import Made, folder_bytes, make

from streaming_core import load_index
from streaming_core._codec import parse_compression
from streaming_core._format import with_checked_start
from streaming_core.errors import ShardFetchError, StreamingError
from streaming_reader._cache import ShardCache

if TYPE_CHECKING:
    from pathlib import Path

_SIZE = 32 << 20


def _put(made: Made, name: str, start: bytes, zeros: int, *, hashed: bool = False) -> str:
    """Let a file of the second shard expand to `start` and zeros; return its name.

    The index says that it is 32 MiB.
    """
    compression = parse_compression("zstd:1")
    assert compression is not None
    packed = compression.compress([start, bytes(zeros)])
    index = json.loads((made.folder / "index.json").read_bytes())
    shard = index["shards"][1]
    hashes = {"xxh64": xxhash.xxh64_hexdigest(packed)} if hashed else {}
    shard[f"raw_{name}"] |= {"bytes": _SIZE, "hashes": {}}
    shard[f"zip_{name}"] |= {"bytes": len(packed), "hashes": hashes}
    (made.folder / "index.json").write_text(json.dumps(index))
    (made.folder / shard[f"zip_{name}"]["basename"]).write_bytes(packed)
    return str(shard[f"raw_{name}"]["basename"])


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("data", 0, "byte 0: it begins with 00000000"),
        ("data", 1, r"byte 4: a sample begins or ends at byte 0, expected \d+ to 33554432"),
        ("data", 2, r"byte 8: a sample begins or ends at byte 0, expected \d+ to 33554432"),
        ("lines", 0, r"byte 0: it begins with b'\\x00', expected b'{'"),
        ("meta", 0, "byte 0: it begins with 00000000"),
        ("meta", 1, r"byte \d+: the last sample ends at byte 0, expected \d+"),
    ],
)
def test_a_small_file_of_another_shard_is_not_expanded(
    tmp_path: Path, name: str, words: int, told: str, *, remote: bool
) -> None:
    """Its header tells; to store all of it could take minutes, and gigabytes of disk."""
    made = make(tmp_path / "remote", compression="zstd", text=name != "data")
    samples = made.table.shard(1).samples
    start = struct.pack("<2I", samples, 4 * (samples + 2) + 100)[: 4 * words]
    basename = _put(made, "meta" if name == "meta" else "data", start, _SIZE - len(start))
    local = tmp_path / "local" if remote else made.folder
    cache = ShardCache(load_index(made.folder), made.store if remote else None, local)
    with pytest.raises(StreamingError, match=f"{re.escape(basename)}, {told}"):
        cache.open(1)
    assert folder_bytes(local, parts=True) < 1 << 20


@pytest.mark.parametrize("pieces", [1, 3, 4, 7, 1 << 20])
def test_headers_may_come_in_pieces(tmp_path: Path, pieces: int) -> None:
    """However few bytes come at a time."""
    for text in (False, True):
        made = make(tmp_path / f"{text}", text=text)
        for shard in map(made.table.shard, range(made.num_shards)):
            for role, file in (("raw", shard.raw), ("raw_meta", shard.raw_meta)):
                if file is None:
                    continue
                data = (made.folder / file.basename).read_bytes()
                cut = [data[at : at + pieces] for at in range(0, len(data), pieces)]
                assert b"".join(with_checked_start(shard, role, cut)) == data


def test_a_file_of_the_right_hash_is_expanded_once(tmp_path: Path) -> None:
    """What it holds is wrong however often it is fetched; that it is too short shows at its end."""
    made = make(tmp_path / "remote", compression="zstd")
    samples = made.table.shard(1).samples
    words = np.full(samples + 2, _SIZE, "<u4")
    words[0] = samples
    _put(made, "data", words.tobytes(), 1 << 20, hashed=True)
    cache = ShardCache(load_index(made.folder), made.store, tmp_path / "local")
    with pytest.raises(ShardFetchError, match="33554432") as caught:
        cache.open(1)
    assert caught.value.attempts == 1
