"""Finetune on texts as llm-foundry's users do: streams from a configuration, packed batches."""

import json
import sys

import numpy as np
import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

FOLDER = sys.argv[1]
CONFIG = {
    "streams": {
        "wiki": {"local": FOLDER + "/wiki", "proportion": 0.75},
        "code": {"local": FOLDER + "/code", "proportion": 0.25},
    },
    "dataset": {
        "shuffle": True,
        "shuffle_algo": "py1e",
        "shuffle_seed": 17,
        "num_canonical_nodes": 1,
        "epoch_size": 64,
        "sampling_method": "balanced",
        "batching_method": "random",
        "allow_unsafe_types": False,
    },
    "device_batch_size": 8,
    "max_seq_len": 32,
}


class Texts(StreamingDataset):
    """Tokens of fixed length, checked when it is made."""

    def __init__(self, *, max_seq_len, token_encoding_type="int64", streams=None, **settings):
        settings["streams"] = streams or []
        if not settings["streams"]:
            settings.pop("streams")
        super().__init__(**({"streams": streams} if streams else {}) | settings)
        self.max_seq_len = max_seq_len
        self.token_encoding_type = token_encoding_type
        self.tokenizer = str.split
        self.num_truncated = 0

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        tokens = np.frombuffer(sample["tokens"], self.token_encoding_type)[: self.max_seq_len]
        return {"input_ids": torch.from_numpy(tokens.copy())}

    def state_dict(self, num_samples, from_beginning):
        return {**super().state_dict(num_samples, from_beginning), "max_seq_len": self.max_seq_len}

    def load_state_dict(self, obj):
        obj = dict(obj)
        assert obj.pop("max_seq_len") == self.max_seq_len
        super().load_state_dict(obj)


class Packer:
    """Joins the examples of a batch to rows of one length, and counts the batches."""

    def __init__(self, length):
        self.length = length
        self.batches = 0

    def __call__(self, examples):
        self.batches += 1
        flat = torch.cat([example["input_ids"] for example in examples])
        rows = len(flat) // self.length
        packed = flat[: rows * self.length].reshape(rows, self.length)
        return {"input_ids": packed, "labels": packed.clone(), "num_examples": len(examples)}


def write(name, first, count):
    columns = {"tokens": "bytes"}
    with MDSWriter(out=f"{FOLDER}/{name}", columns=columns, compression=None, size_limit="4kb") as out:
        for number in range(first, first + count):
            tokens = np.arange(number * 100, number * 100 + 20, dtype=np.int64)
            out.write({"tokens": tokens.tobytes()})


def build():
    streams = [Stream(**given) for given in CONFIG["streams"].values()]
    dataset = Texts(
        streams=streams, max_seq_len=CONFIG["max_seq_len"], batch_size=None, **CONFIG["dataset"]
    )
    dataset.batch_size = CONFIG["device_batch_size"]
    loader = StreamingDataLoader(
        dataset,
        batch_size=CONFIG["device_batch_size"],
        collate_fn=Packer(CONFIG["max_seq_len"]),
        drop_last=True,
    )
    return dataset, loader


def firsts(batches):
    return [int(batch["input_ids"][0, 0]) for batch in batches]


def main():
    write("wiki", 0, 60)
    write("code", 1000, 60)
    dataset, loader = build()
    whole = firsts(loader)
    second = firsts(loader)

    _, loader = build()
    begun = iter(loader)
    head = firsts(next(begun) for _ in range(3))
    state = json.loads(json.dumps(loader.state_dict()))

    _, loader = build()
    loader.num_samples_yielded = 0
    loader.load_state_dict(state)
    tail = firsts(loader)
    print(
        json.dumps(
            {
                "whole": whole,
                "second": second,
                "head": head,
                "tail": tail,
                "samples_per_stream": dataset.samples_per_stream.tolist(),
                "settings": [dataset.shuffle, dataset.shuffle_algo, dataset.shuffle_seed],
                "proportions": [stream.proportion for stream in dataset.streams],
                "max_seq_len": state["max_seq_len"],
            }
        )
    )


if __name__ == "__main__":
    main()
