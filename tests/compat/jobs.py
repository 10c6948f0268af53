"""Processes that the script of fixtures starts and kills: a conversion, and a training run.

Started with one argument, a JSON document. A line on standard output says how far it is; at its
end it waits to be killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.compat.rows import samples

import streaming_core
from streaming_core import Stream, StreamingDataLoader, StreamingDataset

__all__ = ["convert", "opened"]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def convert(settings: dict[str, Any], out: Path, stop: int | None = None) -> bool:
    """Write the samples that are missing, up to `stop`; tell whether the writer was finished."""
    writer_class = getattr(streaming_core, settings["writer"])
    first, last = settings["samples"]
    step = settings.get("batch", 1)
    writer = writer_class(out=out, columns=settings["columns"], **settings["options"])
    start = first + writer.num_safe_samples
    until = last if stop is None else stop
    for at in range(start, until, step):
        some = samples(at, min(at + step, until))
        if step == 1:
            writer.write(some[0])
        else:
            writer.write_batch({name: [row[name] for row in some] for name in settings["columns"]})
    if stop is None:
        writer.finish()
        return True
    _say("written")
    sys.stdin.read()  # until killed, with the writer alive
    return False


def opened(settings: dict[str, Any], **more: Any) -> StreamingDataset:
    """Return the dataset that a manifest describes."""
    given = {**settings, **more}
    streams = given.pop("streams", None)
    if streams is not None:
        given["streams"] = [Stream(**stream) for stream in streams]
    return StreamingDataset(**given)


def _train(given: dict[str, Any]) -> None:
    dataset = opened(given["dataset"])
    loader = StreamingDataLoader(dataset, **given["loader"])
    path = Path(given["checkpoint"])
    for _ in range(given["epochs"]):
        for batch in loader:
            text = json.dumps({"state": loader.state_dict(), "ids": batch["id"].tolist()})
            temporary = path.with_suffix(".new")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
            _say("batch")
    _say("trained")
    sys.stdin.read()


def main() -> None:
    """Run the job that the argument describes."""
    given = json.loads(sys.argv[1])
    if given["job"] == "convert":
        convert(given["settings"], Path(given["out"]), given["stop"])
    else:
        _train(given)


if __name__ == "__main__":
    main()
