"""An interrupt at any line of a write, caught by the caller, loses no other sample unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.jobs import COLUMNS

import streaming_writer
from streaming_core import MDSWriter, StreamingError, load_index, open_store
from streaming_core._read import iterate_samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_HOME = str(Path(streaming_writer.__file__).parent)
_SAMPLES = [{"id": i, "text": "x" * (7 * i % 50)} for i in range(40)]
_NUMBERS = [{"id": sample["id"], "more": sample["id"] * 2} for sample in _SAMPLES]
_AT = 25


class _InterruptError(BaseException):
    """What a signal handler may raise."""


def _rows(writer: MDSWriter, samples: list[dict[str, Any]]) -> None:
    for sample in samples:
        writer.write(sample)


def _batch(writer: MDSWriter, samples: list[dict[str, Any]]) -> None:
    writer.write_batch({name: [sample[name] for sample in samples] for name in samples[0]})


def _interrupted(act: Callable[[], None], line: int) -> bool:
    """Run `act` and raise at the `line`-th line of the writer's code in this thread.

    Return whether there were as many.
    """
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_HOME):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise _InterruptError
        return trace

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
def test_who_catches_an_interrupt_gets_all_other_samples_or_an_error(
    tmp_path: Path,
    samples: list[dict[str, Any]],
    columns: dict[str, str] | None,
    write: Callable[[MDSWriter, list[dict[str, Any]]], None],
) -> None:
    """At every line in turn: either finish fails and leaves no index, or only that call's are out.

    The samples of the interrupted call may be in or out; those before and after it may not.
    """
    line = finished = failed = 0
    while True:
        line += 1
        out = tmp_path / str(line)
        writer = MDSWriter(out=out, columns=columns, size_limit=300, max_workers=1)
        _rows(writer, samples[:_AT])
        victims = samples[_AT : _AT + 1] if write is _rows else samples[_AT : _AT + 9]
        rest = samples[_AT + len(victims) :]
        was_hit = _interrupted(lambda writer=writer, v=victims: write(writer, v), line)  # type: ignore[misc]
        try:
            write(writer, rest)
            writer.finish()
        except StreamingError:
            assert was_hit
            failed += 1
            with pytest.raises(StreamingError):
                writer.finish()
            assert not (out / "index.json").exists()
        else:
            finished += 1
            found = list(iterate_samples(open_store(out), load_index(out)))
            whole = samples[:_AT] + victims + rest
            assert found in (whole, samples[:_AT] + rest) if was_hit else found == whole
        if not was_hit:
            break
        with MDSWriter(out=out, columns=columns, size_limit=300, resume=True) as again:
            if failed and not (out / "index.json").exists():
                _rows(again, samples[again.num_safe_samples :])
                assert again.num_safe_samples <= len(samples)
    assert line > 3
    assert finished > 1 or failed > 0
