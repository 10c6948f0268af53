"""Train a small torch model from a remote data set, be killed mid-epoch, resume, miss nothing.

Run it with `make demo`. It works in `.demo/` below the current folder. The part that a training
script of your own would hold is `train`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streaming_core import MDSWriter, StreamingDataLoader, StreamingDataset

ROOT = Path(".demo")
REMOTE, LOCAL, CHECKPOINT = ROOT / "remote", ROOT / "cache", ROOT / "checkpoint.pt"
NUM_SAMPLES = 40_000
BATCH = 64
CACHE_LIMIT = "2mb"
SAVE_EVERY = 25
SLOW_SECONDS = 0.002
"""What a step of a real model would take at the very least; it gives us time to kill."""


def say(text: str) -> None:
    """Print a line of the story."""
    sys.stdout.write(f"  {text}\n")
    sys.stdout.flush()


def convert() -> None:
    """Write points on a plane with a label each."""
    rng = np.random.default_rng(11)
    points = rng.normal(size=(NUM_SAMPLES, 8)).astype(np.float32)
    labels = points.sum(axis=1) * 3 + 1
    columns = {"id": "int", "point": "ndarray:float32:8", "label": "float32"}
    with MDSWriter(out=REMOTE, columns=columns, compression="zstd", size_limit="100kb") as out:
        out.write_batch({"id": np.arange(NUM_SAMPLES), "point": points, "label": labels})


def train() -> None:
    """Train for one epoch, from the last checkpoint if there is one."""
    dataset = StreamingDataset(
        remote=REMOTE,
        local=LOCAL,
        cache_limit=CACHE_LIMIT,
        batch_size=BATCH,
        shuffle=True,
        shuffle_block_size=4096,
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen: list[int] = []
    if CHECKPOINT.exists():
        saved: dict[str, Any] = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        seen = saved["seen"]
        say(f"going on after {len(seen):,} samples")
    loss = torch.zeros(())
    for number, batch in enumerate(loader, start=1):
        loss = torch.nn.functional.mse_loss(model(batch["point"]).squeeze(1), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += batch["id"].tolist()
        if number % SAVE_EVERY == 0 or len(seen) == NUM_SAMPLES:
            state = {"model": model.state_dict(), "loader": loader.state_dict(), "seen": seen}
            torch.save(state, CHECKPOINT.with_suffix(".new"))
            CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)
            say(f"{len(seen):,} samples, loss {loss:.4f}")
        time.sleep(SLOW_SECONDS)


def killed_mid_epoch() -> None:
    """Start training in another process and kill it in the middle of the epoch."""
    code = [sys.executable, __file__, "train"]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        for line in child.stdout or ():
            say(line.strip())
            if int(line.strip().split(" ")[0].replace(",", "")) > NUM_SAMPLES // 3:
                time.sleep(0.03)  # somewhere between two checkpoints
                os.kill(child.pid, signal.SIGKILL)
                break


def cache_bytes() -> int:
    """Return what the cached shards take."""
    return sum(path.stat().st_size for path in LOCAL.glob("shard.*"))


def main() -> None:
    """Tell the story."""
    for path in (REMOTE, LOCAL):
        shutil.rmtree(path, ignore_errors=True)
    CHECKPOINT.unlink(missing_ok=True)
    sys.stdout.write(f"\n== Write {NUM_SAMPLES:,} samples to a remote\n")
    convert()
    total = sum(path.stat().st_size for path in REMOTE.glob("shard.*"))
    say(f"{total / 1e6:.1f} MB, compressed")
    sys.stdout.write(f"\n== Train with 2 workers and a cache of {CACHE_LIMIT}, killed mid-epoch\n")
    killed_mid_epoch()
    say("killed")
    sys.stdout.write("\n== Run the same script again\n")
    train()
    counts = Counter(torch.load(CHECKPOINT)["seen"])
    if sorted(counts) != list(range(NUM_SAMPLES)) or set(counts.values()) != {1}:
        sys.exit("some samples were missed or seen twice")
    say(f"each of the {NUM_SAMPLES:,} samples was seen exactly once")
    if cache_bytes() > 2 << 20:
        sys.exit("the cache is larger than its limit")
    say(f"the cache holds {cache_bytes() / 1e6:.1f} MB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train()
    else:
        main()
