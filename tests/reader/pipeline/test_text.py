"""Texts and conversations become tokens on their way, as transformers makes them."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.reader.pipeline.words import CHAT, tiny_tokenizer

from streaming_core import chat_template, create_dataloader, tokenize
from streaming_core.errors import MissingColumnError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "hi there"},
    {"role": "assistant", "content": "how you"},
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of texts of one to five words and of conversations."""
    file = tmp_path_factory.mktemp("texts") / "a.parquet"
    words = ["hi", "you", "there", "how", "wört"]
    table = {
        "id": list(range(60)),
        "text": [" ".join(words[: 1 + i % 5]) for i in range(60)],
        "messages": [TALK[: 1 + i % 2] for i in range(60)],
    }
    pq.write_table(pa.table(table), file, row_group_size=17)
    return file


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_texts_become_tokens_of_one_length(texts: Path, workers: int) -> None:
    """Filled up and cut as asked, equal to what the tokenizer gives for all texts at once."""
    tokenizer = tiny_tokenizer()
    loader, _ = create_dataloader(
        texts,
        batch_size=8,
        columns=["id", "text"],
        transform=tokenize(tokenizer, "text", max_length=4, padding=True, labels=True),
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    listed = pq.read_table(texts).column("text").to_pylist()
    for batch in loader:
        assert set(batch) == {"id", "input_ids", "token_type_ids", "attention_mask", "labels"} or (
            set(batch) == {"id", "input_ids", "attention_mask", "labels"}
        )
        ids = batch["id"].tolist()
        wanted = tokenizer(
            [listed[i] for i in ids], max_length=4, padding="max_length", truncation=True
        )
        for name, values in wanted.items():
            assert batch[name].tolist() == values, name
        is_there = batch["attention_mask"].bool()
        assert (batch["labels"][is_there] == batch["input_ids"][is_there]).all()
        assert (batch["labels"][~is_there] == -100).all()


@pytest.mark.parametrize("ragged", ["padded", "offsets"])
def test_tokens_of_different_length_come_as_the_loader_is_told(texts: Path, ragged: Any) -> None:
    """Padded to the longest of the batch, or end to end."""
    tokenizer = tiny_tokenizer()
    loader, _ = create_dataloader(
        texts, batch_size=10, columns=["text"], transform=tokenize(tokenizer), ragged=ragged
    )
    listed = pq.read_table(texts).column("text").to_pylist()
    values, other = next(iter(loader))["input_ids"]
    wanted = [tokenizer(text)["input_ids"] for text in listed[:10]]
    if ragged == "padded":
        assert other.tolist() == list(map(len, wanted))
        found = [row[:length] for row, length in zip(values.tolist(), other.tolist(), strict=True)]
        assert found == wanted
    else:
        bounds = other.tolist()
        assert [values[a:b].tolist() for a, b in itertools.pairwise(bounds)] == wanted


def test_tokenizers_of_both_libraries_and_by_name_give_the_same(tmp_path: Path) -> None:
    """The last is loaded when it is first used, and travels as its name."""
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    row = {"text": "hi there wört you", "n": 1}
    beneath = tokenizer._tokenizer
    cases: list[dict[str, Any]] = [{}, {"max_length": 3}, {"max_length": 6, "padding": True}]
    for options in cases:
        wanted = tokenize(tokenizer, **options)(row)
        named = tokenize(str(tmp_path), **options)
        for other in (tokenize(beneath, **options), named, pickle.loads(pickle.dumps(named))):
            found = other(row)
            assert found["input_ids"].tolist() == wanted["input_ids"].tolist()
            assert found["attention_mask"].tolist() == wanted["attention_mask"].tolist()
            assert found["input_ids"].dtype == np.int64
            assert found["n"] == 1
            assert "text" not in found
    named(row)
    assert len(pickle.dumps(named)) < 1000
    assert tokenize(tokenizer, keep=True)(row)["text"] == row["text"]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_conversations_become_tokens_with_the_answers_marked(texts: Path, workers: int) -> None:
    """As the template says, the structs of a Parquet column as they are."""
    tokenizer = tiny_tokenizer()
    loader, _ = create_dataloader(
        texts,
        batch_size=6,
        columns=["id", "messages"],
        transform=chat_template(
            tokenizer, max_length=12, padding=True, assistant_mask=True, labels=True
        ),
        num_workers=workers,
    )
    for batch in loader:
        for at, number in enumerate(batch["id"].tolist()):
            talk = TALK[: 1 + number % 2]
            text = "".join(f"{m['role']} : {m['content']} . " for m in talk)
            wanted = tokenizer(text)["input_ids"]
            assert batch["input_ids"][at, : len(wanted)].tolist() == wanted
            answers = [i for i, m in enumerate(batch["assistant_masks"][at].tolist()) if m]
            assert answers == ([7, 8] if len(talk) > 1 else [])
            labels = batch["labels"][at].tolist()
            assert [i for i, label in enumerate(labels) if label != -100] == answers


def test_conversations_come_as_json_and_as_text() -> None:
    """A text column of JSON is taken, and no tokens are made where none are asked for."""
    tokenizer = tiny_tokenizer()
    row = {"messages": json.dumps(TALK)}
    as_text = chat_template(tokenizer, as_text=True)(row)
    assert as_text == {"text": "user : hi there . assistant : how you . "}
    ids = chat_template(tokenizer)({"messages": TALK})["input_ids"]
    assert chat_template(tokenizer)(row)["input_ids"].tolist() == ids.tolist()
    prompt = chat_template(
        tokenizer,
        template="{{ messages[0].content }}{% if add_generation_prompt %} assistant{% endif %}",
        add_generation_prompt=True,
        as_text=True,
    )
    assert prompt(row)["text"] == "hi there assistant"


def test_fields_that_a_message_lacks_are_left_out() -> None:
    """A struct column has all fields for all messages; templates ask whether there is one."""
    template = "{% for m in messages %}{{ 'tool' in m }} {% endfor %}"
    talk = [{"role": "user", "content": "hi", "tool": None}, {"role": "user", "tool": "x"}]
    made = chat_template(tiny_tokenizer(), template=template, as_text=True)
    assert made({"messages": talk})["text"] == "False True "


# --- errors ---------------------------------------------------------------------------------------


def test_a_template_without_marks_cannot_say_what_is_an_answer() -> None:
    """Transformers would mark nothing, and a model would be trained on nothing."""
    plain = CHAT.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    made = chat_template(tiny_tokenizer(template=plain), assistant_mask=True)
    with pytest.raises(SchemaError, match="generation"):
        made({"messages": TALK})
    assert chat_template(tiny_tokenizer(template=plain))({"messages": TALK})


@pytest.mark.parametrize(
    ("make", "row", "error", "said"),
    [
        (tokenize, {"words": "hi"}, MissingColumnError, "no column 'text'.*'words'"),
        (tokenize, {"text": None}, SchemaError, "must hold texts, came None"),
        (tokenize, ("hi",), SchemaError, "rows that are dicts, came tuple"),
        (chat_template, {"messages": "[{"}, SchemaError, "no JSON"),
        (chat_template, {"messages": 3}, SchemaError, "lists of messages, came 3"),
        (chat_template, {"messages": ["hi"]}, SchemaError, "lists of messages"),
    ],
)
def test_rows_that_do_not_fit_are_named(make: Any, row: Any, error: Any, said: str) -> None:
    """With the column and what came."""
    with pytest.raises(error, match=said):
        make(tiny_tokenizer())(row)


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (tokenize, {"padding": True}, "max_length"),
        (tokenize, {"max_length": 0}, "max_length: expected at least 1, got 0"),
        (tokenize, {"column": 3}, "column: expected a text, got 3"),
        (chat_template, {"as_text": True, "labels": True}, "as_text makes no tokens"),
    ],
)
def test_settings_that_contradict_each_other(make: Any, options: Any, said: str) -> None:
    """Are refused before anything is read."""
    with pytest.raises(SchemaError, match=said):
        make(tiny_tokenizer(), **options)


def test_what_is_no_tokenizer_is_said(tmp_path: Path) -> None:
    """By name, by kind, and without a template."""
    with pytest.raises(SchemaError, match="finds no tokenizer"):
        tokenize(str(tmp_path / "none"))({"text": "hi"})
    with pytest.raises(SchemaError, match="tokenizer: expected a tokenizer of"):
        tokenize(3)
    with pytest.raises(SchemaError, match="tokenizer: expected a tokenizer of"):
        chat_template(3)
    with pytest.raises(SchemaError, match="no chat template"):
        chat_template(tiny_tokenizer(template=None))({"messages": TALK})
