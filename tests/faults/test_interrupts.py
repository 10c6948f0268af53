"""An interrupt at any line of a write, caught by the caller, loses no other sample unnoticed."""

from __future__ import annotations

import linecache
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.jobs import COLUMNS

import streaming_writer
from streaming_core import MDSWriter, StreamingError, register_store
from streaming_core._index import parse_index
from streaming_core._read import iterate_samples
from streaming_core.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_HOME = str(Path(streaming_writer.__file__).parent)
_SAMPLES: list[dict[str, Any]] = [{"id": i, "text": "x" * (7 * i % 50)} for i in range(40)]
_NUMBERS = [{"id": sample["id"], "more": sample["id"] * 2} for sample in _SAMPLES]
_AT = 25


class _InterruptError(BaseException):
    """What a signal handler may raise."""


def _given(store: MemoryStore, _: str) -> MemoryStore:
    return store


def _rows(writer: MDSWriter, samples: list[dict[str, Any]]) -> None:
    for sample in samples:
        writer.write(sample)


def _batch(writer: MDSWriter, samples: list[dict[str, Any]]) -> None:
    writer.write_batch({name: [sample[name] for sample in samples] for name in samples[0]})


def _interrupted(act: Callable[[], None], line: int) -> bool:
    """Run `act` and raise before the `line`-th line of the writer's code in this thread.

    Return whether there were as many.
    """
    left = line

    def trace(frame: FrameType, _: str, __: object) -> Any:
        if not frame.f_code.co_filename.startswith(_HOME):
            return None
        last = frame.f_lineno

        def each(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left, last
            if event == "line":
                # Python delivers no signal between the body of a `with` and its end.
                text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                left -= not (text.startswith("with ") and last > frame.f_lineno)
                last = frame.f_lineno
                if left == 0:
                    sys.settrace(None)
                    raise _InterruptError
            return each

        return each

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except _InterruptError:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize(
    ("samples", "columns"),
    [(_SAMPLES, COLUMNS), (_NUMBERS, {"id": "int", "more": "int64"}), (_SAMPLES, None)],
    ids=["mixed", "packed", "inferred"],
)
@pytest.mark.parametrize("write", [_rows, _batch])
@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.slow)])
def test_who_catches_an_interrupt_gets_all_other_samples_or_an_error(
    samples: list[dict[str, Any]],
    columns: dict[str, str] | None,
    write: Callable[[MDSWriter, list[dict[str, Any]]], None],
    stride: int,
) -> None:
    """Either finish fails and leaves no index, or only the samples of that call are out.

    The interrupt comes at each line in turn, or at every seventh.
    Each sample of the interrupted calls may be in or out; those before and after are all in.
    """
    step = stride if columns else 5 * stride  # many lines look at the values of the first samples
    line = finished = failed = 0
    was_hit = True
    while was_hit:
        line += step
        store = MemoryStore()
        register_store("interrupted", partial(_given, store))
        writer = MDSWriter(out="interrupted://", columns=columns, size_limit=300, max_workers=1)
        _rows(writer, samples[:_AT])
        victims, rest = samples[_AT : _AT + 9], samples[_AT + 9 :]
        was_hit = _interrupted(partial(write, writer, victims), line)
        try:
            write(writer, rest)
            writer.finish()
        except StreamingError:
            assert was_hit
            failed += 1
            with pytest.raises(StreamingError):
                writer.finish()
            assert "index.json" not in [info.key for info in store.list()]
        else:
            finished += 1
            table = parse_index(store.get("index.json"), "index.json")
            found = list(iterate_samples(store, table))
            kept = len(found) - _AT - len(rest)
            assert found == samples[:_AT] + victims[:kept] + rest
            assert was_hit or kept == len(victims)
            assert write is _rows or kept in {0, len(victims)}
    assert line > 3
    assert finished > 1 or failed > 0
