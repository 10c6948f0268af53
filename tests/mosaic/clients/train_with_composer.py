"""Train with Composer, and go on from each of its checkpoints."""

import json
import os
import sys

import torch
from composer import Callback, Trainer
from composer.models import ComposerModel
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

FOLDER, INTERVAL, WORKERS = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Numbers(StreamingDataset):
    """Numbers with torchvision's convention."""

    def __init__(self, transforms=None, **settings):
        super().__init__(**settings)
        self.transforms = transforms

    def __getitem__(self, at):
        number = super().__getitem__(at)["number"]
        return torch.tensor([float(number)]), torch.tensor([float(number)])


class Model(ComposerModel):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(1, 1)

    def forward(self, batch):
        return self.weight(batch[0])

    def loss(self, outputs, batch):
        return ((outputs - batch[1]) ** 2).mean() * 1e-6


class Seen(Callback):
    """Keeps what each batch had."""

    def __init__(self):
        self.batches = []

    def batch_start(self, state, logger):
        epoch = state.timestamp.epoch.value
        self.batches.append([epoch, [int(number) for number in state.batch[0].flatten()]])


def trained(name, load=None):
    dataset = Numbers(
        remote=FOLDER + "/data",
        local=FOLDER + "/" + name,
        shuffle=True,
        shuffle_seed=3,
        num_canonical_nodes=1,
        batch_size=4,
    )
    seen = Seen()
    model = Model()
    trainer = Trainer(
        model=model,
        train_dataloader=StreamingDataLoader(dataset, batch_size=4, num_workers=WORKERS),
        max_duration="4ep",
        optimizers=torch.optim.SGD(model.parameters(), lr=1e-3),
        callbacks=[seen],
        save_folder=FOLDER + "/checkpoints-" + name,
        save_interval=INTERVAL,
        save_filename="{batch}.pt",
        load_path=load,
        progress_bar=False,
        log_to_console=False,
        loggers=[],
        device="cpu",
    )
    trainer.fit()
    trainer.close()
    return seen.batches


def main():
    with MDSWriter(out=FOLDER + "/data", columns={"number": "int"}, size_limit=400) as out:
        for number in range(24):
            out.write({"number": number})
    whole = trained("whole")
    again = {}
    for batches in range(1, len(whole)):
        path = f"{FOLDER}/checkpoints-whole/{batches}.pt"
        if os.path.exists(path):
            again[batches] = trained(f"from-{batches}", load=path)
    print(json.dumps({"whole": whole, "again": again}))


if __name__ == "__main__":
    main()
