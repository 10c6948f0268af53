"""Parquet files, transforms that travel to workers, and tokenizers made on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "CHAT",
    "double",
    "halves",
    "is_wanted",
    "nothing_or_many",
    "tiny_tokenizer",
    "write_parquet",
]

UNKNOWN = "[UNK]"
CHAT = (
    "{% for m in messages %}{{ m.role }} : "
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %} . {% endfor %}"
)
"""A template that marks what the assistant says."""


def write_parquet(folder: Path, rows: int, *, files: int = 3, group: int = 37) -> Path:
    """Write rows with the ids from 0 in files of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), files)):
        listed = ids.tolist()
        vector = pa.FixedSizeListArray.from_arrays(
            pa.array(np.repeat(ids, 4).astype(np.float32)), 4
        )
        columns = {
            "id": ids,
            "x": ids * 0.5,
            "even": ids % 2 == 0,
            "text": [f"wört {i}" for i in listed],
            "vector": vector,
            "list": pa.array([list(range(i % 5)) for i in listed], pa.list_(pa.int32())),
            "time": pa.array(listed, pa.timestamp("us")),
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


def double(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for a row."""
    return {"id": row["id"], "twice": 2 * row["id"]}


def is_wanted(row: dict[str, Any]) -> bool:
    """Leave out two thirds."""
    return bool(row["id"] % 3 == 0)


def halves(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give two rows for one."""
    for part in (0, 1):
        yield {"id": row["id"], "part": part}


def nothing_or_many(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Give no row, or up to six."""
    return [{"id": row["id"], "part": part} for part in range(row["id"] % 7)]


def tiny_tokenizer(*, template: str | None = CHAT) -> Any:
    """Return a tokenizer of transformers with a vocabulary of a few words."""
    words = ["[PAD]", UNKNOWN, "user", "assistant", ":", ".", "wört", "hi", "you", "there", "how"]
    model = WordLevel({word: at for at, word in enumerate(words)}, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    made: Any = PreTrainedTokenizerFast
    return made(
        tokenizer_object=tokenizer,
        pad_token=words[0],
        unk_token=UNKNOWN,
        chat_template=template,
    )
