"""Settings from a mapping, YAML or JSON: typed, known, and all that is wrong said at once."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.pipeline.words import tiny_tokenizer

from streaming_core import dataloader_from_config
from streaming_core.errors import MissingExtraError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path

yaml: Any = importlib.import_module("yaml")  # has no types


def _rows(loader: Any) -> list[Any]:
    return [row for batch in loader for row in batch]


def test_a_file_describes_the_whole_way(parquet_folder: Path, tmp_path: Path) -> None:
    """Source, order, transforms by name and tokens; a mapping, YAML and JSON say the same."""
    tiny_tokenizer().save_pretrained(tmp_path / "words")
    config: dict[str, Any] = {
        "streams": [{"path": f"{parquet_folder}/*.parquet", "columns": ["id", "text"]}],
        "batch_size": 16,
        "batch_format": "rows",
        "shuffle": True,
        "shuffle_seed": 3,
        "filter": "tests.reader.pipeline.making:is_wanted",
        "transform": [
            {"tokenize": {"tokenizer": str(tmp_path / "words"), "max_length": 2, "padding": True}},
        ],
        "timeout": 0,
        "rank": 0,
        "num_ranks": 1,
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "a.json").write_text(json.dumps(config))
    wanted = _rows(dataloader_from_config(config)[0])
    assert sorted(row["id"] for row in wanted) == list(range(0, 250, 3))
    assert all(row["input_ids"].tolist() == [6, 1] for row in wanted)
    for source in (
        tmp_path / "a.yaml",
        str(tmp_path / "a.json"),
        yaml.safe_dump(config),
        json.dumps(config, indent=1),
    ):
        found = _rows(dataloader_from_config(source)[0])
        assert [row["id"] for row in found] == [row["id"] for row in wanted]


def test_changes_count_instead(parquet_folder: Path) -> None:
    """And may be what no file can say."""
    config = {"path": f"{parquet_folder}/*.parquet", "batch_size": 9, "filter": "no.such:thing"}
    loader, _ = dataloader_from_config(
        config, batch_size=25, filter=lambda row: row["id"] < 30, columns=["id"]
    )
    batches = list(loader)
    assert len(batches) == 10
    assert [i for b in batches if b for i in b["id"].tolist()] == list(range(30))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"path": "a", "batch_sise": 3}, "takes no 'batch_sise' .did you mean 'batch_size'"),
        ({"path": "a", "batch_size": "3"}, "batch_size: expected a whole number, got '3'"),
        ({"path": "a", "batch_size": True}, "batch_size: expected a whole number"),
        (
            {"path": 3, "shuffle": "yes", "batch_size": 1},
            "path: .*; shuffle: expected True or False",
        ),
        ({"columns": "id", "path": "a", "batch_size": 1}, "columns: Expected `array"),
        ({"path": "a"}, "needs batch_size"),
        ({"streams": [{"path": "a", "colums": []}]}, r"streams\[0\] of the config takes no 'colu"),
        ({"streams": [{"path": 3}], "batch_size": 1}, r"streams\[0\].path: Expected"),
        ({"streams": 3, "batch_size": 1}, "streams: Expected `array`"),
        ({"path": "a", "batch_size": 1, "world": 1}, "takes no 'world'"),
        ({"path": "a", "batch_size": 1, "filter": "os"}, "must be the name of a function"),
        ({"path": "a", "batch_size": 1, "filter": "os:nothing"}, "cannot be imported"),
        ({"path": "a", "batch_size": 1, "filter": "no_such_module:f"}, "cannot be imported"),
        ({"path": "a", "batch_size": 1, "filter": "os:sep"}, "must be the name of a function"),
        ({"path": "a", "batch_size": 1, "transform": [{"tokenise": {}}]}, "mean 'tokenize'"),
        ({"path": "a", "batch_size": 1, "transform": [{"tokenize": {}}]}, "needs tokenizer"),
        ({"path": "a", "batch_size": 1, "transform": {"tokenize": 3}}, "takes a mapping"),
        ({"path": "a", "batch_size": 1, "transform": [{}]}, "must name one transform"),
        (
            {"path": "a", "batch_size": 1, "transform": {"tokenize": {"tokeniser": "x"}}},
            "mean 'tokenizer'",
        ),
        (
            {
                "path": "a",
                "batch_size": 1,
                "transform": {"tokenize": {"tokenizer": "x", "max_length": "9"}},
            },
            "tokenize: max_length: expected a whole number, got '9'",
        ),
        ([], "must be a mapping of settings, came list"),
        ("- 1", "must be a mapping of settings, came list"),
        ("", "must be a mapping of settings, came NoneType"),
        ("a: [", "is no YAML"),
        ("batch_size: 1\nbatch_size: 2", "says 'batch_size' twice"),
        ('{"batch_size": 1, "batch_size": 2}', "says 'batch_size' twice"),
        ("path: &a [*a]", "within itself"),
        ("!!python/object/apply:os.getcwd []", "is no YAML"),
        ("a" * (1 << 20 | 1), "at most"),
    ],
)
def test_what_is_wrong_is_said(config: Any, said: str) -> None:
    """Names with what was meant, types with what came; nothing in YAML is run."""
    with pytest.raises(SchemaError, match=said):
        dataloader_from_config(config)


def test_a_file_that_stands_for_too_much_is_refused() -> None:
    """References to references make billions of values of a few lines."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(SchemaError, match="more than"):
        dataloader_from_config("\n".join(lines))


def test_a_file_that_is_not_there_is_one(tmp_path: Path) -> None:
    """And one that is too long is not read."""
    with pytest.raises(FileNotFoundError):
        dataloader_from_config(tmp_path / "none.yaml")
    with pytest.raises(FileNotFoundError):
        dataloader_from_config(str(tmp_path / "none.yml"))
    (tmp_path / "long.yaml").write_text("#" * (1 << 20 | 1))
    with pytest.raises(SchemaError, match="at most"):
        dataloader_from_config(tmp_path / "long.yaml")


def test_yaml_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, ids_folder: Path) -> None:
    """Without it, JSON and mappings still do."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match="yaml"):
        dataloader_from_config("path: a")
    config = {"path": str(ids_folder), "batch_size": 50}
    for source in (config, json.dumps(config)):
        assert len(list(dataloader_from_config(source)[0])) == 3


def test_filters_are_written_as_lists(parquet_folder: Path) -> None:
    """As YAML has no tuples."""
    loader, _ = dataloader_from_config(
        f"path: {parquet_folder}/*.parquet\nbatch_size: 8\ncolumns: [id]\n"
        "filters: [[id, '>=', 240]]\nbatch_format: rows"
    )
    assert [row["id"] for row in _rows(loader)] == list(range(240, 250))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
_NAMES = st.sampled_from(["batch_size", "streams", "transform", "filters", "nulls", "path", "rank"])


@given(config=st.dictionaries(_NAMES, _JSON, max_size=4))
def test_any_values_are_refused_with_a_typed_error(config: dict[str, Any]) -> None:
    """Whatever is written: nothing but `SchemaError`, or the file that is not there."""
    config |= {"columns": 3}
    with pytest.raises(SchemaError):
        dataloader_from_config(config)


@given(text=st.text(alphabet=st.sampled_from("abp:-[]{}&* \n\"'!|>?#1.\t"), max_size=60))
def test_any_text_is_refused_with_a_typed_error(text: str) -> None:
    """None of these is a whole config."""
    with pytest.raises(SchemaError):
        dataloader_from_config("\n" + text)
