"""Encodings of one's own, registered by name, written, and read shard by shard."""

import json
import os
import sys

import numpy as np
from streaming import LocalDataset, MDSWriter
from streaming.base.format.mds.encodings import (
    Encoding,
    _encodings,
    get_mds_encodings,
    is_mds_encoding,
    mds_decode,
    mds_encode,
)
from streaming.base.format import reader_from_json
from streaming.base.util import bytes_to_int, get_list_arg, number_abbrev_to_int, retry

FOLDER = sys.argv[1]


class Points(Encoding):
    """Points of a plane, two float32 each."""

    def encode(self, obj):
        return np.asarray(obj, np.float32).tobytes()

    def decode(self, data):
        return np.frombuffer(data, np.float32).reshape(-1, 2)


_encodings["points"] = Points


class Local(LocalDataset):
    """Adds a column to every sample."""

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        return {**sample, "count": len(sample["points"])}


def main():
    columns = {"id": "int", "points": "points", "name": "str"}
    limit = bytes_to_int("1kb")
    with MDSWriter(out=FOLDER + "/data/train", columns=columns, size_limit=limit) as out:
        for number in range(30):
            points = [(number, number + i) for i in range(number % 4 + 1)]
            out.write({"id": number, "points": points, "name": f"n{number}"})
    with open(os.path.join(FOLDER, "data", "train", "index.json")) as file:
        shards = json.load(file)["shards"]
    sums, sizes = [], []
    for obj in shards:
        reader = reader_from_json(FOLDER + "/data", "train", obj)
        sizes.append([reader.samples, reader.size, len(reader), reader.get_raw_size()])
        sums += [float(reader.get_item(row)["points"].sum()) for row in range(len(reader))]
        assert os.path.exists(os.path.join(reader.dirname, reader.split, reader.raw_data.basename))
        assert reader.zip_data is None

    attempts = []

    @retry(ValueError, num_attempts=3, initial_backoff=0.01, max_jitter=0.01)
    def fails_twice():
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError
        return len(attempts)

    dataset = Local(FOLDER + "/data", "train")
    print(
        json.dumps(
            {
                "sums": sums,
                "sizes": sizes,
                "counts": [dataset[number]["count"] for number in range(len(dataset))],
                "last": dataset[-1]["name"],
                "known": [is_mds_encoding("points"), is_mds_encoding("nothing")],
                "registered": "points" in get_mds_encodings(),
                "round": mds_decode("points", mds_encode("points", [(1, 2)])).tolist(),
                "list": get_list_arg("a,b"),
                "numbers": [number_abbrev_to_int("2k"), limit],
                "attempts": fails_twice(),
            }
        )
    )


if __name__ == "__main__":
    main()
