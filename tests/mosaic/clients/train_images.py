"""Train on images as Composer's users do: transforms, ranks from the launcher, exact resume."""

import json
import sys

import numpy as np
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.distributed import get_rank, get_world_size
from streaming.base.util import clean_stale_shared_memory

FOLDER = sys.argv[1]
COLUMNS = {"image": "ndarray:uint8:4,4,3", "label": "int"}


class Images(StreamingDataset):
    """Images with torchvision's convention: `transforms` takes image and label."""

    def __init__(self, *, transforms=None, **settings):
        super().__init__(**settings)
        self.transforms = transforms
        self.stats = {"seen": 0}

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        image, label = sample["image"], sample["label"]
        if self.transforms is not None:
            image, label = self.transforms(image, label)
        self.stats["seen"] += 1
        return image, label


def transforms(image, label):
    return image.astype(np.float32) / 255, label + 1000


def loader(workers):
    dataset = Images(
        remote=FOLDER + "/data",
        local=FOLDER + "/cache",
        shuffle=True,
        shuffle_seed=7,
        num_canonical_nodes=2,
        batch_size=4,
        transforms=transforms,
    )
    return dataset, StreamingDataLoader(dataset, batch_size=4, num_workers=workers)


def labels(batches):
    return [int(label) for _, batch in batches for label in batch]


def main():
    with MDSWriter(out=FOLDER + "/data", columns=COLUMNS, size_limit=900) as out:
        for number in range(50):
            image = np.full((4, 4, 3), number, np.uint8)
            out.write({"image": image, "label": number})
    clean_stale_shared_memory()
    dataset, batches = loader(workers=0)
    whole = labels(batches)

    clean_stale_shared_memory()
    other, batches = loader(workers=0)
    begun = iter(batches)
    first = labels(next(begun) for _ in range(5))
    # What a trainer keeps: samples of all ranks in this epoch.
    state = json.loads(json.dumps(other.state_dict(len(first), from_beginning=True)))
    begun = None

    clean_stale_shared_memory()
    resumed, batches = loader(workers=0)
    resumed.load_state_dict(state)
    rest = labels(batches)
    print(
        json.dumps(
            {
                "whole": whole,
                "first": first,
                "rest": rest,
                "seen": dataset.stats["seen"],
                "rank": [get_rank(), get_world_size()],
                "length": len(dataset),
            }
        )
    )


if __name__ == "__main__":
    main()
