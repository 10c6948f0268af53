"""What each rank of a job runs over files that nobody converted, noting the ids it was given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.reader.pipeline.making import is_wanted

from streaming_core import create_dataloader

BATCH = 20


def _note(job: str, out: str, found: Any) -> None:
    rank = os.environ.get("RANK", "0")
    Path(out, f"{job}.{rank}.json").write_text(json.dumps(found))


def _made(table: str, **options: Any) -> Any:
    return create_dataloader(
        f"{table}/*.parquet", batch_size=BATCH, columns=["id"], shuffle=True, **options
    )[0]


def accelerate(out: str, table: str) -> None:
    """Iterate two epochs of a prepared loader, filtered as well, and resume in the third."""
    from accelerate import Accelerator

    accelerator = Accelerator()
    found: dict[str, Any] = {"world": accelerator.num_processes}
    for workers in (0, 2):
        loader = accelerator.prepare(_made(table, num_workers=workers))
        epochs = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            epochs.append([batch["id"].tolist() for batch in loader])
        found[str(workers)] = {"epochs": epochs, "length": len(loader)}
        filtered = accelerator.prepare(_made(table, filter=is_wanted, num_workers=workers))
        found[f"filtered {workers}"] = [batch["id"].tolist() for batch in filtered if batch]
        found[f"steps {workers}"] = len(list(filtered))
    accelerator.free_memory()  # states are saved and loaded for loaders in order
    loader = accelerator.prepare(_made(table))
    taken = []
    for batch in loader:
        taken.append(batch["id"].tolist())
        if len(taken) == 7:
            accelerator.save_state(f"{out}/saved")
            break
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    resumed = accelerator.prepare(_made(table))
    accelerator.load_state(f"{out}/saved")
    found["resumed"] = taken + [batch["id"].tolist() for batch in resumed]
    _note("accelerate", out, found)
    accelerator.end_training()


def lightning(out: str, table: str) -> None:
    """Let Lightning's trainer go through two epochs on its own."""
    import torch
    from lightning.pytorch import LightningModule, Trainer

    seen: list[list[list[int]]] = []

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def on_train_epoch_start(self) -> None:
            seen.append([])

        def training_step(self, batch: Any) -> Any:
            seen[-1].append(batch["id"].tolist())
            return (self.weight * batch["id"].float()).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-9)

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
    ).fit(Model(), _made(table, num_workers=0))
    _note("lightning", out, seen)


if __name__ == "__main__":
    {"accelerate": accelerate, "lightning": lightning}[sys.argv[1]](sys.argv[2], sys.argv[3])
