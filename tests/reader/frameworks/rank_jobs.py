"""What each rank of a plain torch job runs; some of them are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed

from streaming_core import StreamingDataLoader, StreamingDataset

# Both have no types for some of what is used.
distributed: Any = torch.distributed
cuda: Any = torch.cuda
BATCH = 4
EPOCHS = 2
STEPS_BETWEEN_STATES = 2
KILLED_AT = {0: (1, 5), 1: (0, 9)}
"""Which rank dies after which step of all, by how often all were started anew."""


def resumable(out: str) -> None:
    """Train two epochs, saving often; die where the plan says so; note what each step was given.

    Ranks keep step through torchrun's own store: gloo does not always find its peers again after
    one of them was killed.
    """
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = distributed.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False
    )
    dataset = StreamingDataset(local=f"{out}/data", batch_size=BATCH, shuffle=True)
    loader = StreamingDataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork")
    saved = Path(out, "saved.json")
    step = 0
    if saved.exists():
        step, state = json.loads(saved.read_text())
        loader.load_state_dict(state)
    while dataset.next_epoch < EPOCHS:
        epoch = dataset.next_epoch
        for batch in loader:
            step += 1
            given = json.dumps([epoch, batch["id"].tolist()])
            Path(out, f"step.{step}.{rank}.json").write_text(given)
            if KILLED_AT.get(int(attempt)) == (int(rank), step):
                Path(out, f"killed.{attempt}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            store.set(f"{attempt}.{step}.{rank}", "done")
            store.wait([f"{attempt}.{step}.{each}" for each in range(2)], timedelta(seconds=200))
            if rank == "0" and step % STEPS_BETWEEN_STATES == 0:
                Path(out, "saving.json").write_text(json.dumps([step, loader.state_dict()]))
                Path(out, "saving.json").replace(saved)


def alone(out: str) -> None:
    """Let one rank of two iterate whole epochs, before and after the group is made."""
    rank = int(os.environ["RANK"])
    dataset = StreamingDataset(local=f"{out}/data", batch_size=BATCH)
    assert not distributed.is_initialized()
    ids = [[sample["id"] for sample in dataset] if rank == 1 else []]
    assert not distributed.is_initialized()
    distributed.init_process_group("gloo")
    after = StreamingDataset(local=f"{out}/data", batch_size=BATCH)
    assert after.world == dataset.world
    for each in (dataset, after):
        loader = StreamingDataLoader(each, BATCH, num_workers=1, multiprocessing_context="fork")
        batches = loader if rank == 1 else ()
        ids.append([int(i) for batch in batches for i in batch["id"]])
    assert not cuda.is_initialized()
    Path(out, f"alone.{rank}.json").write_text(json.dumps(ids))
    distributed.destroy_process_group()


if __name__ == "__main__":
    {"resumable": resumable, "alone": alone}[sys.argv[1]](sys.argv[2])
