"""Convert in several processes, and merge their parts by hand, as scripts of llm-foundry do."""

import json
import multiprocessing
import os
import sys

from streaming import MDSWriter, StreamingDataset
from streaming.base.format import get_index_basename, reader_from_json
from streaming.base.util import merge_index

FOLDER = sys.argv[1]
PARTS = 3
EACH = 40


def convert(part):
    with MDSWriter(
        out=os.path.join(FOLDER, "out", f"{part:05d}"),
        columns={"id": "int", "text": "str"},
        compression="zstd",
        hashes=["sha1"],
        size_limit=500,
    ) as out:
        for number in range(part * EACH, part * EACH + EACH):
            out.write({"id": number, "text": f"text {number}"})
    return out.local


def with_infix(basename, intern, part):
    """Return a shard's new name: `shard.00003.mds` of part 1 becomes `shard.00013.mds`."""
    name, _, rest = basename.split(".", 2)
    return f"{name}.{intern:05d}.{rest}"


def merge_by_hand(root):
    """Move all shards to the root, and remove the folders, which must be empty then."""
    shards, count = [], 0
    for part in sorted(os.listdir(root)):
        folder = os.path.join(root, part)
        index = os.path.join(folder, get_index_basename())
        with open(index) as file:
            document = json.load(file)
        for shard in document["shards"]:
            for key in ("raw_data", "zip_data"):
                if shard.get(key):
                    old = shard[key]["basename"]
                    new = with_infix(old, count, part)
                    if os.path.exists(os.path.join(folder, old)):
                        os.rename(os.path.join(folder, old), os.path.join(root, new))
                    shard[key]["basename"] = new
            shards.append(shard)
            count += 1
        os.remove(index)
        os.rmdir(folder)
    with open(os.path.join(root, get_index_basename()), "w") as file:
        json.dump({"version": 2, "shards": shards}, file, sort_keys=True)
    return shards


def ids(folder, cache):
    dataset = StreamingDataset(remote=folder, local=cache, batch_size=1)
    return [sample["id"] for sample in dataset]


def main():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(convert, range(PARTS))
    merge_index(os.path.join(FOLDER, "out"))
    merged = ids(os.path.join(FOLDER, "out"), os.path.join(FOLDER, "cache-merged"))
    os.remove(os.path.join(FOLDER, "out", get_index_basename()))

    shards = merge_by_hand(os.path.join(FOLDER, "out"))
    moved = ids(os.path.join(FOLDER, "out"), os.path.join(FOLDER, "cache-moved"))
    files = sorted(os.listdir(os.path.join(FOLDER, "out")))

    # The cache has shards that are expanded: they are read one by one.
    found = []
    for obj in shards:
        reader = reader_from_json(os.path.join(FOLDER, "cache-moved"), None, obj)
        reader.validate(False)
        found += [reader[row]["id"] for row in range(reader.size)]
    print(
        json.dumps(
            {
                "merged": merged,
                "moved": moved,
                "found": found,
                "others": [name for name in files if not name.startswith("shard.")],
                "raw": sum(reader.get_raw_size() for _ in range(1)),
                "columns": [reader.column_names, reader.column_encodings, reader.compression],
            }
        )
    )


if __name__ == "__main__":
    main()
