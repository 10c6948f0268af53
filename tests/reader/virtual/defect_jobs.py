"""What each rank of a job under Accelerate runs, noting the ids it was given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.reader.virtual.defects import ids_of, made

SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no dispatch": {"dispatch_batches": False},
    "dispatch": {"dispatch_batches": True},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False, "dispatch_batches": False},
}
"""What Accelerate may be told of loaders."""


def prepared(out: str, table: str) -> None:
    """Go through two epochs of a prepared loader under each setting, with workers and without."""
    from accelerate import Accelerator, DataLoaderConfiguration

    found: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(**setting))
        for workers in (0, 2):
            loader = accelerator.prepare(made(table, num_workers=workers, shuffle=True))
            found[f"{name} {workers}"] = [ids_of(loader) for _ in range(2)]
        accelerator.free_memory()
    Path(out, f"prepared.{os.environ['RANK']}.json").write_text(json.dumps(found))
    accelerator.end_training()


if __name__ == "__main__":
    {"prepared": prepared}[sys.argv[1]](sys.argv[2], sys.argv[3])
