"""A loader from a file of settings: names and types are checked, all problems said at once."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from streaming_core._arguments import argument_problem, refuse_unknown
from streaming_core._extras import require
from streaming_core.errors import SchemaError
from streaming_reader._pipeline._create import create_dataloader
from streaming_reader._pipeline._names import ELSEWHERE, SOURCE, PipelineOptions
from streaming_reader._pipeline._packing import pack
from streaming_reader._pipeline._text import chat_template, tokenize

if TYPE_CHECKING:
    from streaming_reader.dataset import StreamingDataset
    from streaming_reader.loader import StreamingDataLoader

__all__ = ["SETTINGS", "dataloader_from_config"]

_MOST_BYTES: Final = 1 << 20
_MOST_VALUES: Final = 1 << 17
_SUFFIXES: Final = (".yaml", ".yml", ".json")

SETTINGS: Final = frozenset(PipelineOptions.__annotations__) - {"world", "generator"} | {
    "path",
    "batch_size",
}
"""What a file may say; the others are objects."""
_Step: TypeAlias = str | dict[str, Any]
_TYPES: Final[dict[str, Any]] = {
    "path": str | list[str] | None,
    "columns": list[str] | None,
    "filters": list[Any] | None,
    "nulls": str | dict[str, Any],
    "streams": list[dict[str, Any]],
    **dict.fromkeys(("storage_options", "format_options"), dict[str, Any] | None),
    "transform": _Step | list[_Step] | None,
    "batch_transform": _Step | None,
    # Functions are named, as `package.module:f`.
    **dict.fromkeys(("filter", "collate_fn", "worker_init_fn"), str | None),
    "multiprocessing_context": str | None,
}
"""Those that `ARGUMENTS` does not have, or of which a file has another form."""

_FUNCTIONS: Final = ("filter", "collate_fn", "worker_init_fn")
_STEPS: Final[dict[str, Callable[..., Any]]] = {
    "tokenize": tokenize,
    "chat_template": chat_template,
}
_BATCH_STEPS: Final[dict[str, Callable[..., Any]]] = {"pack": pack}


def dataloader_from_config(
    config: Mapping[str, Any] | str | os.PathLike[str],
    **changes: Any,  # noqa: ANN401 - as `create_dataloader` takes them
) -> tuple[StreamingDataLoader, StreamingDataset]:
    """Return what `create_dataloader` returns for settings of the same names.

    `transform` is a list of functions by name (`package.module:function`, which is imported, so use
    only settings that you trust as you trust code) and of `tokenize` and `chat_template` with what
    they take; `batch_transform` is a function by name, or `pack` with what it takes. `filter`,
    `collate_fn` and `worker_init_fn` are names as well.

    Args:
        config: A mapping, or YAML or JSON: a text, or a file (`.yaml`, `.yml`, `.json`). YAML needs
            PyYAML.
        **changes: Settings that count instead of those, such as `num_workers=0`; not checked here.

    Raises:
        SchemaError: It is no mapping, names settings that there are not, or has values of a wrong
            type; lists all.
        FileNotFoundError: There is no such file.
        MissingExtraError: It is YAML, and PyYAML is not installed.

    Example:
        >>> dataloader_from_config("{batch_sise: 8}")
        Traceback (most recent call last):
            ...
        streaming_core.errors.SchemaError: the config takes no 'batch_sise' (did you mean ...
    """
    given, where = _read(config)
    refuse_unknown(given, SETTINGS, where, ELSEWHERE)
    _check(given, where)
    settings: dict[str, Any] = {
        name: _function(value, name) if name in _FUNCTIONS and value is not None else value
        for name, value in given.items()
        if name not in changes
    }
    if "transform" in settings:
        settings["transform"] = _steps(settings["transform"])
    if settings.get("batch_transform") is not None:
        step = settings["batch_transform"]
        settings["batch_transform"] = _step(step, "batch_transform", _BATCH_STEPS)
    if "filters" in settings:
        settings["filters"] = _as_tuples(settings["filters"])
    if "streams" in settings:
        settings["streams"] = [
            {n: _as_tuples(v) if n == "filters" else v for n, v in each.items()}
            for each in settings["streams"]
        ]
    settings |= changes
    if "batch_size" not in settings:
        msg = f"{where} needs batch_size, the samples in each batch of one rank"
        raise SchemaError(msg)
    return create_dataloader(**settings)


# --- reading --------------------------------------------------------------------------------------


def _read(config: object) -> tuple[dict[str, Any], str]:
    """Return the settings and what to call them in errors."""
    where = "the config"
    text: object = config
    if isinstance(config, os.PathLike) or (
        isinstance(config, str) and "\n" not in config and config.endswith(_SUFFIXES)
    ):
        path = Path(cast("os.PathLike[str]", config))
        where = f"the config {path}"
        if path.stat().st_size > _MOST_BYTES:
            msg = f"{where} has {path.stat().st_size} bytes; a config has at most {_MOST_BYTES}"
            raise SchemaError(msg)
        text = path.read_text(encoding="utf-8")
    found: object = _parsed(text, where) if isinstance(text, str) else text
    if not isinstance(found, Mapping):
        msg = f"{where} must be a mapping of settings, came {type(found).__name__}"
        raise SchemaError(msg)
    return {**cast("Mapping[str, Any]", found)}, where


def _parsed(text: str, where: str) -> object:
    if len(text) > _MOST_BYTES:
        msg = f"{where} has {len(text)} characters; a config has at most {_MOST_BYTES}"
        raise SchemaError(msg)
    if text.lstrip().startswith("{"):
        try:
            return cast("object", json.loads(text, object_pairs_hook=lambda p: _once(p, where)))
        except (ValueError, RecursionError) as error:
            if isinstance(error, SchemaError):
                raise
            # It may be YAML's way of writing a mapping on one line.
    yaml = require("yaml", extra="yaml", purpose="a config in YAML")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _count(yaml, root, where, {})
        return cast("object", yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        msg = f"{where} is no YAML: {error!s:.300}"
        raise SchemaError(msg) from error


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"{where} says {', '.join(map(repr, twice))} twice; say it once"
        raise SchemaError(msg)
    return dict(pairs)


def _count(yaml: Any, node: Any, where: str, known: dict[int, int]) -> int:  # noqa: ANN401 - of an optional dependency
    """Return how many values a node of YAML stands for, what it refers to included.

    Raises `SchemaError` for more than anybody writes, for a node within itself, and for a name
    that is given twice, of which YAML would take the last one without a word.
    """
    if id(node) in known:
        if not known[id(node)]:
            msg = f"{where} refers to a value from within itself"
            raise SchemaError(msg)
        return known[id(node)]
    known[id(node)] = 0
    total = 1
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _once([(name, None) for name in names], where)
        total += sum(_count(yaml, part, where, known) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_count(yaml, part, where, known) for part in node.value)
    if total > _MOST_VALUES:
        msg = f"{where} stands for more than {_MOST_VALUES} values"
        raise SchemaError(msg)
    known[id(node)] = total
    return total


# --- checking -------------------------------------------------------------------------------------


def _check(given: dict[str, Any], where: str) -> None:
    """Raise `SchemaError` for all values of a wrong type."""
    problems = _wrong(given, "")
    streams: object = given.get("streams")
    if isinstance(streams, list) and not any(p.startswith("streams:") for p in problems):
        for at, source in enumerate(cast("list[dict[str, Any]]", streams)):
            refuse_unknown(source, SOURCE | {"path"}, f"streams[{at}] of {where}", ELSEWHERE)
            problems += _wrong(source, f"streams[{at}].")
    if problems:
        msg = f"{where} has values of a wrong type: {'; '.join(problems)}"
        raise SchemaError(msg)


def _wrong(given: Mapping[str, Any], within: str) -> list[str]:
    problems: list[str] = []
    for name, value in given.items():
        if name in _TYPES:
            try:
                msgspec.convert(value, _TYPES[name], strict=True)
            except msgspec.ValidationError as error:
                problems.append(f"{within}{name}: {error}, in {value!r:.60}")
        elif value is not None or name not in SOURCE:  # None: not said
            problem = argument_problem(name, value)
            problems += [] if problem is None else [f"{within}{problem}"]
    return problems


def _as_tuples(filters: object) -> object:
    """Return comparisons as tuples, which YAML cannot write: `[["x", ">", 3], ...]`."""
    if not isinstance(filters, list):
        return filters
    listed = cast("list[object]", filters)
    if listed and isinstance(listed[0], str):
        return tuple(listed)
    return [_as_tuples(each) for each in listed]


# --- functions ------------------------------------------------------------------------------------


def _steps(steps: object) -> list[Any]:
    if steps is None:
        return []
    listed = cast("list[object]", steps) if isinstance(steps, list) else [steps]
    return [_step(step, f"transform[{at}]", _STEPS) for at, step in enumerate(listed)]


def _step(step: Any, where: str, known: Mapping[str, Callable[..., Any]]) -> Any:  # noqa: ANN401 - a function
    if isinstance(step, str):
        return _function(step, where)
    if len(step) != 1:
        example = next(iter(known))
        msg = f"{where} must name one transform, such as {example}: {{...}}, came {sorted(step)}"
        raise SchemaError(msg)
    ((name, options),) = step.items()
    refuse_unknown([name], known.keys(), where, ELSEWHERE)
    make = known[name]
    parameters = inspect.signature(make).parameters
    if not isinstance(options, Mapping):
        msg = f"{where}: {name} takes a mapping of settings, came {options!r:.80}"
        raise SchemaError(msg)
    given = cast("Mapping[str, Any]", options)
    refuse_unknown(given, parameters.keys(), f"{where}: {name}", ELSEWHERE)
    needed = [p.name for p in parameters.values() if p.default is p.empty]
    if any(option not in options for option in needed):
        msg = f"{where}: {name} needs {', '.join(needed)}"
        raise SchemaError(msg)
    try:
        return make(**options)
    except SchemaError as error:
        msg = f"{where}: {name}: {error}"
        raise SchemaError(msg) from error


def _function(name: str, where: str) -> Any:  # noqa: ANN401 - a function
    """Return the function `package.module:name`."""
    module, colon, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module) if colon and path else None
        for part in path.split(".") if found else ():
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        msg = f"{where}: {name!r:.80} cannot be imported: {error!s:.200}"
        raise SchemaError(msg) from error
    if not callable(found):
        msg = (
            f"{where} must be the name of a function, such as 'package.module:f', came {name!r:.80}"
        )
        raise SchemaError(msg)
    return found
