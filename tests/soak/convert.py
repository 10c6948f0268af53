"""A conversion of many samples that can be made again from their numbers."""

from __future__ import annotations

import hashlib
import sys
from typing import Final

from streaming_core import MDSWriter

__all__ = ["MEAN_BYTES", "sample"]

_NOISE: Final = b"".join(hashlib.sha512(number.to_bytes(4)).digest() for number in range(1 << 15))
_LEAST, _MOST = 2_000, 198_000
MEAN_BYTES: Final = (_LEAST + _MOST) // 2


def sample(number: int) -> dict[str, int | bytes]:
    """Return a sample; no two have the same bytes."""
    size = _LEAST + number * 7_919 % (_MOST - _LEAST)
    start = number * 104_729 % (len(_NOISE) - size)
    return {"id": number, "body": number.to_bytes(8) + _NOISE[start : start + size]}


def main(out: str, count: int) -> None:
    """Write what is not safe yet, and say how many samples were."""
    with MDSWriter(
        out=out, columns={"id": "int", "body": "bytes"}, size_limit="16mb", resume=True
    ) as writer:
        print(writer.num_safe_samples, flush=True)  # noqa: T201 - for the test
        for number in range(writer.num_safe_samples, count):
            writer.write(sample(number))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
