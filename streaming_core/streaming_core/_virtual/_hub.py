"""Which files of a data set on the Hugging Face Hub are a split of a configuration. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core._extras import require
from streaming_core._virtual._kinds import kind_of_name
from streaming_core._virtual._patterns import is_hidden, pattern_regex
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HUB_OPTIONS", "hub_files"]

HUB_OPTIONS: Final = ("config", "split")
"""What users may say of such a data set."""

_DEFAULT: Final = "default"
_TRAIN: Final = "train"
_WORDS: Final = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""What a name has to have in it, as a word, to be of a split."""
_SHARDED: Final = re.compile(r"(?:.*/)?data/([\w.]+)-\d{5}-of-\d{5}[^/]*")


def hub_files(
    names: Sequence[str], card: str, *, config: str | None, split: str | None
) -> list[str]:
    """Return the files of a split, in order; `card` is the text of the data set's `README.md`.

    The card's own `configs` decide; without any, the files' names do, as the Hub takes them.

    Raises `SchemaError` if there is no such configuration or split; lists those there are.

    Example:
        >>> hub_files(
        ...     ["data/train-00000-of-00001.parquet", "README.md"], "", config=None, split="train"
        ... )
        ['data/train-00000-of-00001.parquet']
    """
    data = sorted(name for name in names if not is_hidden(name) and kind_of_name(name))
    if not data:
        msg = (
            "no data files are in this place of the Hub; give the data set itself, and its "
            "split as format_options={'split': 'test'}"
        )
        raise SchemaError(msg)
    configs = _configs(card)
    if config is None:
        chosen = next((one for one in configs if one.get("default") is True), None)
        chosen = chosen or next(
            (one for one in configs if one["config_name"] == _DEFAULT),
            configs[0] if len(configs) == 1 else None,
        )
        if chosen is None and configs:
            raise _none_configuration(None, [str(one["config_name"]) for one in configs])
    else:
        chosen = next((one for one in configs if one["config_name"] == config), None)
        if chosen is None and (configs or config != _DEFAULT):
            raise _none_configuration(config, [str(one["config_name"]) for one in configs])
    splits = _splits(chosen, data)
    if split is None:
        split = next(iter(splits)) if len(splits) == 1 else _TRAIN
    if not splits.get(split):
        raise _none_split(split, list(splits))
    return splits[split]


def _none_configuration(name: str | None, known: Sequence[str]) -> SchemaError:
    return _none("configuration", name, known)


def _none_split(name: str | None, known: Sequence[str]) -> SchemaError:
    return _none("split", name, known)


def _none(what: str, name: str | None, known: Sequence[str]) -> SchemaError:
    asked = f"no {what} {name!r}" if name else f"several {what}s"
    there = ", ".join(map(repr, known)) or "none"
    return SchemaError(
        f"{asked} in this data set of the Hub; there are {there}. Say which is meant"
    )


def _configs(card: str) -> list[dict[str, Any]]:
    """Return the configurations that a card names with their files."""
    parts = re.split(r"^---\s*$", card.lstrip("\ufeff"), maxsplit=2, flags=re.MULTILINE)
    if len(parts) < 3 or parts[0].strip():  # noqa: PLR2004 - before, within and after
        return []
    yaml = require("yaml", extra="hf", purpose="the card of a data set on the Hub")
    try:
        found: Any = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        return []
    configs: object = None
    if isinstance(found, dict):
        configs = cast("dict[str, object]", found).get("configs")
    if not isinstance(configs, list):
        return []
    known = [
        cast("dict[str, Any]", one)
        for one in cast("list[object]", configs)
        if isinstance(one, dict)
    ]
    return [one for one in known if "config_name" in one]


def _splits(config: dict[str, Any] | None, data: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each split of a configuration."""
    files: Any = None if config is None else config.get("data_files")
    folder = "" if config is None else str(config.get("data_dir") or "").strip("/")
    below = [name for name in data if not folder or name.startswith(f"{folder}/")]
    if files is None:
        return _by_name(below)
    if isinstance(files, str) or (
        isinstance(files, list) and all(isinstance(one, str) for one in cast("list[object]", files))
    ):
        return {_TRAIN: _matching(files, data, folder)}
    entries = cast("list[object]", files if isinstance(files, list) else [files])
    found: dict[str, list[str]] = {}
    for entry in entries:
        if isinstance(entry, dict) and "path" in entry:
            one = cast("dict[str, Any]", entry)
            found[str(one.get("split", _TRAIN))] = _matching(one["path"], data, folder)
    return found


def _matching(patterns: Any, data: Sequence[str], folder: str) -> list[str]:  # noqa: ANN401 - as a card has it
    each = (
        [str(one) for one in cast("list[object]", patterns)]
        if isinstance(patterns, list)
        else [str(patterns)]
    )
    lead = f"{folder}/" if folder else ""
    found: dict[str, None] = {}
    for pattern in each:
        matches = pattern_regex(lead + pattern.removeprefix("./")).fullmatch
        found.update(dict.fromkeys(name for name in data if matches(name)))
    return list(found)


def _by_name(data: Sequence[str]) -> dict[str, list[str]]:
    """Return the files by the split that their names tell; all are of `train` if none tells any."""
    sharded: dict[str, list[str]] = {}
    for name in data:
        match = _SHARDED.fullmatch(name)
        if match is not None:
            sharded.setdefault(match[1], []).append(name)
    if sharded:
        return sharded
    for of in (_folders, _stem):
        found = {
            split: [name for name in data if _has_word(of(name), words)]
            for split, words in _WORDS.items()
        }
        found = {split: names for split, names in found.items() if names}
        if found:
            return found
    return {_TRAIN: list(data)} if data else {}


def _folders(name: str) -> str:
    return name.rpartition("/")[0]


def _stem(name: str) -> str:
    return name.rpartition("/")[2]


def _has_word(text: str, words: Sequence[str]) -> bool:
    return any(re.search(rf"(?:^|[-._ 0-9/]){word}(?:[-._ 0-9/]|$)", text) for word in words)
