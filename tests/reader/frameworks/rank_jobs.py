"""What each rank of a plain torch job runs; some of them are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch.distributed

from streaming_core import StreamingDataLoader, StreamingDataset

BATCH = 4
STEPS_BETWEEN_STATES = 2
KILLED_AT = {0: (1, 5), 1: (0, 9)}
"""Which rank dies after which step of all, by how often all were started anew."""


def resumable(out: str) -> None:
    """Train two epochs, saving often; die where the plan says so; note what each step was given."""
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    before = StreamingDataset(local=f"{out}/data", batch_size=BATCH, shuffle=True)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    assert before.world.rank == rank
    loader = StreamingDataLoader(before, BATCH, num_workers=2, multiprocessing_context="fork")
    saved = Path(out, "saved.json")
    step = 0
    if saved.exists():
        step, state = json.loads(saved.read_text())
        loader.load_state_dict(state)
    while before.next_epoch < 2:
        epoch = before.next_epoch
        for batch in loader:
            step += 1
            given = torch.zeros(2, BATCH, dtype=torch.int64) - 1
            given[rank, : len(batch["id"])] = batch["id"]
            torch.distributed.all_reduce(given, torch.distributed.ReduceOp.MAX)
            if rank == 0:
                Path(out, f"step.{step}.json").write_text(json.dumps([epoch, given.tolist()]))
                if step % STEPS_BETWEEN_STATES == 0:
                    Path(out, "saving.json").write_text(json.dumps([step, loader.state_dict()]))
                    Path(out, "saving.json").replace(saved)
            if KILLED_AT.get(attempt) == (rank, step):
                Path(out, f"killed.{attempt}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.destroy_process_group()


def alone(out: str) -> None:
    """Let one rank of two iterate whole epochs, before and after the group is made."""
    rank = int(os.environ["RANK"])
    dataset = StreamingDataset(local=f"{out}/data", batch_size=BATCH)
    assert not torch.distributed.is_initialized()
    ids = [[sample["id"] for sample in dataset] if rank == 1 else []]
    assert not torch.distributed.is_initialized()
    torch.distributed.init_process_group("gloo")
    after = StreamingDataset(local=f"{out}/data", batch_size=BATCH)
    assert after.world == dataset.world
    for each in (dataset, after):
        loader = StreamingDataLoader(each, BATCH, num_workers=1, multiprocessing_context="fork")
        batches = loader if rank == 1 else ()
        ids.append([int(i) for batch in batches for i in batch["id"]])
    assert not torch.cuda.is_initialized()
    Path(out, f"alone.{rank}.json").write_text(json.dumps(ids))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"resumable": resumable, "alone": alone}[sys.argv[1]](sys.argv[2])
