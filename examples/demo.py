"""Write a small data set, look at it, read it back, kill a writer half-way and resume it.

Run it with `make demo`. It works in `.demo/` below the current folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(".demo")
NUM_SAMPLES = 60_000
HALF_WAY = "half-way"
COLUMNS = {
    "id": "int",
    "text": "str",
    "tokens": "ndarray:uint16",
    "embedding": "ndarray:float32:8",
    "price": "str_decimal",
    "tags": "json",
    "blob": "bytes",
}


def samples() -> Iterator[dict[str, Any]]:
    """Yield the same mixed samples in every run."""
    rng = np.random.default_rng(7)
    for i in range(NUM_SAMPLES):
        yield {
            "id": i,
            "text": f"sample {i}: café ☕",
            "tokens": rng.integers(0, 50_000, i % 64, dtype=np.uint16),
            "embedding": rng.random(8, dtype=np.float32),
            "price": Decimal(i) / 100,
            "tags": {"even": i % 2 == 0, "of": ["demo"]},
            "blob": bytes([i % 256]) * (i % 32),
        }


def convert(out: Path, *, tell: bool = False) -> None:
    """Write the samples, or go on where an earlier run was stopped."""
    with MDSWriter(
        out=out, columns=COLUMNS, compression="zstd", size_limit="512kb", resume=True
    ) as writer:
        safe = writer.num_safe_samples
        if safe:
            say(f"{safe:,} samples are safe from the run before; going on after them")
        for sample in islice(samples(), safe, None):
            writer.write(sample)
            if sample["id"] == NUM_SAMPLES // 2 and tell:
                say(HALF_WAY)


def say(text: str) -> None:
    """Print a line of the story."""
    sys.stdout.write(f"  {text}\n")
    sys.stdout.flush()


def step(title: str) -> None:
    """Print a heading of the story."""
    sys.stdout.write(f"\n== {title}\n")
    sys.stdout.flush()


def command(*args: str) -> None:
    """Run the command line as a user would."""
    sys.stdout.write(f"$ streaming-core {' '.join(args)}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "streaming_core.cli", *args], check=True)  # noqa: S603


def killed_half_way(out: Path) -> None:
    """Start a conversion in another process and kill it when it says that it is half-way."""
    code = [sys.executable, __file__, "convert", str(out)]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        if child.stdout is None or child.stdout.readline().strip() != HALF_WAY:
            sys.exit("the conversion ended before it could be killed")
        child.kill()


def files(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def main() -> None:
    """Tell the story."""
    shutil.rmtree(ROOT, ignore_errors=True)
    whole, broken = ROOT / "whole", ROOT / "broken"

    step(f"Write {NUM_SAMPLES:,} samples of seven column types")
    start = time.perf_counter()
    convert(whole)
    say(f"done in {time.perf_counter() - start:.1f} s")

    step("Look at the data set")
    command("inspect", str(whole))
    command("head", str(whole), "-n", "2")

    step("Read every sample back, all hashes checked")
    command("verify", str(whole))

    step("Kill a writer half-way, then run the same conversion again")
    killed_half_way(broken)
    index = "an index" if (broken / "index.json").exists() else "no index"
    say(f"killed: {len(list(broken.glob('shard.*')))} shards are there, and {index}")
    convert(broken)
    if files(broken) != files(whole):
        sys.exit("the resumed data set differs from the uninterrupted one")
    total = json.loads((broken / "index.json").read_text())["shards"]
    say(f"resumed: {len(total)} shards, every file equal to the uninterrupted run's")


if __name__ == "__main__":
    if sys.argv[1:2] == ["convert"]:
        convert(Path(sys.argv[2]), tell=True)
    else:
        main()
