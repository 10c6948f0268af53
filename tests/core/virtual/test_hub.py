"""Which files are a split of a data set on the Hub."""

from __future__ import annotations

import pytest

from streaming_core._virtual._hub import hub_files
from streaming_core.errors import SchemaError

_CARD = """---
license: mit
configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: "en/train/*.parquet"
  - split: held_out
    path:
    - en/held-*.parquet
    - "en/more.parquet"
- config_name: de
  data_dir: de
---
# A data set
"""
_NAMES = [
    "README.md",
    ".gitattributes",
    "en/train/1.parquet",
    "en/train/0.parquet",
    "en/held-0.parquet",
    "en/more.parquet",
    "de/train.jsonl",
    "de/dev.jsonl",
]


def test_the_card_decides() -> None:
    """Configurations, their splits, and folders."""
    assert hub_files(_NAMES, _CARD, config=None, split="train") == [
        "en/train/0.parquet",
        "en/train/1.parquet",
    ]
    assert hub_files(_NAMES, _CARD, config="en", split="held_out") == [
        "en/held-0.parquet",
        "en/more.parquet",
    ]
    assert hub_files(_NAMES, _CARD, config="de", split="validation") == ["de/dev.jsonl"]
    with pytest.raises(SchemaError, match=r"no configuration 'fr'.*'en', 'de'"):
        hub_files(_NAMES, _CARD, config="fr", split=None)
    with pytest.raises(SchemaError, match=r"no split 'test'.*'train', 'held_out'"):
        hub_files(_NAMES, _CARD, config="en", split="test")


@pytest.mark.parametrize(
    ("names", "split", "wanted"),
    [
        (["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], "train", 2),
        (
            ["data/train-00000-of-00001.parquet", "data/odd.split-00000-of-00001.parquet"],
            "odd.split",
            1,
        ),
        (["train/a.csv", "train/b.csv", "test/a.csv"], "train", 2),
        (["my_train_1.csv", "my-valid.csv", "x/strain.csv"], "validation", 1),
        (["my-train.csv", "strain.csv"], "train", 1),
        (["a.csv", "b/c.csv", "d.txt.md"], None, 2),
        (["evaluation.jsonl", "train.jsonl"], "test", 1),
    ],
)
def test_without_a_card_names_decide(names: list[str], split: str | None, wanted: int) -> None:
    """By words in folders and files."""
    assert len(hub_files(names, "", config=None, split=split)) == wanted


@pytest.mark.parametrize(
    "card", ["", "no front", "---\n: : :\n---\n", "---\nconfigs: 3\n---\n", "---\n- a\n---\n"]
)
def test_a_card_that_says_nothing_of_files_is_none(card: str) -> None:
    """Whatever it has instead."""
    assert hub_files(["train.csv"], card, config=None, split="train") == ["train.csv"]
    assert hub_files(["train.csv"], card, config="default", split=None) == ["train.csv"]
    with pytest.raises(SchemaError, match="no configuration 'x'"):
        hub_files(["train.csv"], card, config="x", split=None)


def test_a_place_without_data_says_how_a_split_is_named() -> None:
    """As one may be taken for a folder."""
    with pytest.raises(SchemaError, match=r"no data files.*format_options=\{'split': 'test'\}"):
        hub_files(["README.md"], "", config=None, split=None)
