"""Errors keep their class, message and kind on the way between processes."""

from __future__ import annotations

import importlib
import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streaming_core import errors
from streaming_core.errors import IndexInvalidError, Problem, StreamingError

if TYPE_CHECKING:
    from pathlib import Path


def _classes() -> list[type[StreamingError]]:
    """Return every error class that the errors module offers."""
    offered = [getattr(errors, name) for name in errors.__all__]
    return [one for one in offered if issubclass(one, StreamingError)]


def _below(cls: type[StreamingError]) -> set[type[StreamingError]]:
    """Return all classes below `cls` that are loaded."""
    return {cls}.union(*(_below(child) for child in cls.__subclasses__()))


def _example(cls: type[StreamingError]) -> StreamingError:
    """Return one error of the class, made as the code makes it."""
    if issubclass(cls, IndexInvalidError):
        problems = (Problem("$.shards[3].samples", "an integer was required, came 'x'", "type"),)
        return cls("gs://bucket/index.json", problems)
    return cls("shard.00003.mds: byte 17: something was required, something else came")


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.__name__)
def test_errors_survive_pickling(cls: type[StreamingError]) -> None:
    """A worker's error arrives in the trainer as what it was."""
    error = _example(cls)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (str(again), again.args, again.kind) == (str(error), error.args, error.kind)
    assert vars(again) == vars(error)


def test_kinds_are_unique() -> None:
    """A script can tell errors apart by `kind` alone."""
    counts = Counter(cls.kind for cls in _classes())
    assert not [kind for kind, count in counts.items() if count > 1]


def _is_left_out(path: Path) -> bool:
    """Whether importing a module raises what to do instead."""
    return path.read_text("utf-8").endswith("raise ImportError(_MESSAGE, name=__name__)\n")


def test_all_errors_stand_in_the_errors_module(root: Path, sources: list[Path]) -> None:
    """No module hides an error class of its own from those who want to catch it."""
    for path in sources:
        if path.name != "__main__.py" and not _is_left_out(path):
            inner = path.relative_to(root).with_suffix("").parts[1:]
            importlib.import_module(".".join(inner).removesuffix(".__init__"))
    assert _below(StreamingError) == set(_classes())
