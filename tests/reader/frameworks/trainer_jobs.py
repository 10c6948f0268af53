"""What each rank runs: real trainers, which note the ids that reach the model."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader

from streaming_core import StreamingDataLoader, StreamingDataset
from streaming_core.errors import CheckpointError

BATCH = 4
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "every process reads": {"dispatch_batches": False},
    "split": {"split_batches": True},
    "split, every process reads": {"split_batches": True, "dispatch_batches": False},
    "stateful": {"use_stateful_dataloader": True},
}
CASES = [
    *((name, 2, "even") for name in VARIANTS),
    *((name, 0, "odd") for name in VARIANTS),
    ("default", 0, "even"),
    ("split", 0, "even"),
    ("default", 2, "odd"),
]
"""Variants of which every one meets either number of workers, and either number of samples."""


def ids_of(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate the numbers alone, as trainers dispatch nothing but tensors."""
    return {"id": torch.tensor([sample["id"] for sample in samples])}


def dataset(folder: str) -> StreamingDataset:
    """Return a shuffled data set of a folder."""
    return StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)


def _note(job: str, out: str, found: Any) -> None:
    rank = os.environ.get("RANK", "0")
    Path(out, f"{job}.{rank}.json").write_text(json.dumps(found))


def accelerate(out: str, folder: str, odd: str) -> None:
    """Iterate two epochs through each way in which Accelerate prepares a loader."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    found = {}
    for name, workers, data in CASES:
        config, place = VARIANTS[name], odd if data == "odd" else folder
        prepared = Accelerator(dataloader_config=DataLoaderConfiguration(**config)).prepare(
            DataLoader(
                dataset(place),
                batch_size=BATCH,
                collate_fn=ids_of,
                num_workers=workers,
                multiprocessing_context="fork" if workers else None,
            )
        )
        batches = [[batch["id"].tolist() for batch in prepared] for _ in range(2)]
        found[f"{name}, {workers} workers, {data}"] = {
            "length": len(prepared),
            "epochs": batches,
        }
    ours = StreamingDataLoader(dataset(folder), BATCH)
    found["ours"] = {"epochs": [[batch["id"].tolist() for batch in ours] for _ in range(2)]}
    _note("accelerate", out, found)
    Accelerator().end_training()


def prepared(out: str, folder: str) -> None:
    """Iterate our loader as Accelerate prepares it; save in the third epoch, go on, go back."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=5)
    loader = accelerator.prepare(StreamingDataLoader(dataset(folder), BATCH, num_workers=2))
    epochs: list[list[list[int]]] = []
    synced: list[bool] = []
    for _ in range(2):
        epochs.append([])
        for batch in loader:
            assert batch["vector"].device.type == accelerator.device.type
            with accelerator.accumulate():
                synced.append(accelerator.sync_gradients)
            epochs[-1].append(batch["id"].tolist())
    third = []
    for taken, batch in enumerate(loader, 1):
        third.append(batch["id"].tolist())
        if taken == 3:
            accelerator.save_state(f"{out}/state")
    accelerator.load_state(f"{out}/state")
    resumed = [[batch["id"].tolist() for batch in loader] for _ in range(2)]
    # Batches of five leave some samples over, which are dropped: the epoch is over all the same.
    dropping = StreamingDataset(local=folder, batch_size=5, shuffle=True)
    short = accelerator.prepare(StreamingDataLoader(dropping, 5, drop_last=True))
    lengths = [sum(1 for _ in short)]
    short.load_state_dict(short.state_dict())
    lengths.append(sum(1 for _ in short))
    found = {
        "length": len(loader),
        "epochs": epochs,
        "synced": synced,
        "third": third,
        "resumed": resumed,
        "lengths": lengths,
    }
    _note("prepared", out, found)
    accelerator.end_training()


class _Seen:
    """Ids by epoch, as the model was given them."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[list[int]]] = {}

    def add(self, epoch: int, ids: torch.Tensor) -> None:
        self.epochs.setdefault(epoch, []).append(ids.tolist())


def lightning(out: str, folder: str) -> None:
    """Fit three epochs; then fit again, stopped in the second and resumed from a checkpoint."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.seen = _Seen()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.seen.add(self.current_epoch, batch["id"])
            loss: torch.Tensor = self.layer(batch["vector"]).sum() * 0
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self) -> StreamingDataLoader:
            return StreamingDataLoader(
                dataset(folder), BATCH, num_workers=2, multiprocessing_context="fork"
            )

    ranks = int(os.environ.get("WORLD_SIZE", "1"))

    def fit(path: str | None = None, *, callbacks: list[Any] | None = None, **options: Any) -> Any:
        model = Model()
        trainer = Trainer(
            accelerator="cpu",
            devices=ranks,
            strategy="ddp" if ranks > 1 else "auto",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=callbacks is not None,
            callbacks=callbacks,
            default_root_dir=out,
            **options,
        )
        trainer.fit(model, ckpt_path=path)
        loader: Any = trainer.train_dataloader
        return model.seen.epochs, len(loader)

    whole, length = fit(max_epochs=3)
    saving = ModelCheckpoint(
        f"{out}/checkpoints", filename="{step}", every_n_train_steps=length + 5, save_top_k=-1
    )
    stopped, _ = fit(max_steps=length + 7, callbacks=[saving])
    checkpoint = f"{out}/checkpoints/step={length + 5}.ckpt"
    resumed, _ = fit(checkpoint, max_epochs=3)
    found = {"whole": whole, "stopped": stopped, "resumed": resumed, "length": length}
    _note("lightning", out, found)


def transformers(out: str, folder: str) -> None:
    """Train two epochs and a part with the Trainer's own loader and with ours; resume."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[list[int]] = []

        def forward(self, id: torch.Tensor) -> dict[str, torch.Tensor]:  # noqa: A002 - the column
            self.seen.append(id.tolist())
            return {"loss": self.layer(id[:, None].float()).sum() * 0}

    class OursTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(
                StreamingDataLoader(cast("Any", self.train_dataset), BATCH, collate_fn=ids_of)
            )

    class KeepState(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002 - called by name
            path = Path(args.output_dir, f"data-{state.global_step}.json")
            path.write_text(json.dumps(given["train_dataloader"].state_dict()))

    def train(kind: type, steps: int, resume: str | None = None, **options: Any) -> Any:
        model = Model()
        data = dataset(folder)
        if resume is not None and "ignore_data_skip" in options:
            state = json.loads(
                Path(out, "hf", f"data-{resume.rpartition('-')[2]}.json").read_text()
            )
            data.load_state_dict(state)
        arguments = TrainingArguments(
            f"{out}/hf",
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            save_steps=length + 5,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
            **options,
        )
        callbacks = [KeepState()] if kind is OursTrainer else []
        trainer = kind(
            model=model,
            args=arguments,
            data_collator=ids_of,
            train_dataset=data,
            callbacks=callbacks,
        )
        trainer.train(resume_from_checkpoint=resume)
        return model.seen

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    length = -(-len(dataset(folder)) // BATCH)
    found: dict[str, Any] = {"length": length, "ranks": ranks}
    checkpoint = f"{out}/hf/checkpoint-{length + 5}"
    found["default"] = train(Trainer, 2 * length + 3)
    found["default resumed"] = train(Trainer, 2 * length + 3, checkpoint)
    found["ours"] = train(OursTrainer, 2 * length + 3)
    try:
        train(OursTrainer, 2 * length + 3, checkpoint)
    except CheckpointError as error:
        found["refused"] = str(error)
    found["ours resumed"] = train(OursTrainer, 2 * length + 3, checkpoint, ignore_data_skip=True)
    _note("transformers", out, found)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
