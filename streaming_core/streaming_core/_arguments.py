"""The arguments of the public interface: what each one may be, and the function that checks it."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import wraps
from numbers import Real
from reprlib import Repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, cast

import numpy as np

from streaming_core._units import parse_bytes, parse_count
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FunctionType

    from streaming_core.errors import StreamingError

__all__ = [
    "ARGUMENTS",
    "Argument",
    "argument_problem",
    "checked",
    "refuse_unknown",
    "suggests",
    "unexpected",
]

_P = ParamSpec("_P")

_shown = Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = 80


class Argument(NamedTuple):
    """What a value may be; `None` as well if it is `optional`."""

    kind: str
    """A key of `_KINDS`."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """The value is larger than this."""
    optional: bool = False
    choices: tuple[str, ...] = ()


_IN_NO_PLACE: Final = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""Other surrogates are how Python shows bytes of a name that are not of the system's encoding."""
_MOST: Final = 2**63 - 1
_MOST_SAMPLES: Final = 2**53
"""Shares of an epoch are floats, which hold whole numbers up to this."""
_MOST_OF_A_BATCH: Final = 1 << 24
"""Ranks get whole batches of ids, so an order has at least that many of them."""
_MOST_TRIES: Final = 1000
"""Pauses between tries double, and must stay finite."""
_MOST_CANONICAL_NODES: Final = 1 << 24
"""An order in more pieces needs gigabytes for their bounds alone."""
_MOST_SECONDS: Final = 10**9
"""The clock cannot wait longer."""
_MOST_SHARD_BYTES: Final = 2**32 - 1


def _whole(least: int, most: int = _MOST, *, optional: bool = False) -> Argument:
    return Argument("whole", least, most, optional=optional)


def _one_of(*choices: str) -> Argument:
    return Argument("choice", choices=choices)


_SWITCH: Final = Argument("switch")
_TEXT: Final = Argument("text")
_OPTIONAL_TEXT: Final = Argument("text", optional=True)
_PLACE: Final = Argument("place", optional=True)
_MAPPING: Final = Argument("mapping", optional=True)
_FUNCTION: Final = Argument("function", optional=True)

ARGUMENTS: Final[dict[str, Argument]] = {
    # Where data lies.
    **dict.fromkeys(("remote", "local", "split", "index"), _PLACE),
    "url_or_path": Argument("place"),
    **dict.fromkeys(("format", "validate_hash"), _OPTIONAL_TEXT),
    "stream_name": _TEXT,
    **dict.fromkeys(("stream_config", "format_options"), _MAPPING),
    "keep_zip": _SWITCH,
    "allow_unsafe_types": _SWITCH,
    "download_retry": _whole(0, _MOST_TRIES),
    "download_timeout": Argument("number", above=0, most=_MOST_SECONDS),
    "cache_limit": Argument("bytes", 1, _MOST, optional=True),
    "predownload": _whole(0, _MOST_SAMPLES, optional=True),
    # How much of it is used, and in which order.
    "proportion": Argument("number", 0, 10**18, optional=True),
    "repeat": Argument("number", 0, 10**9, optional=True),
    "choose": _whole(0, _MOST_SAMPLES, optional=True),
    "epoch_size": Argument("count", 0, _MOST_SAMPLES, optional=True),
    "batch_size": _whole(1, _MOST_OF_A_BATCH, optional=True),
    "shuffle": _SWITCH,
    "shuffle_algo": _one_of("naive", "py1s", "py1b", "py1br", "py1e", "py2s", "windowed"),
    "shuffle_seed": _whole(0),
    "shuffle_block_size": _whole(1, _MOST_SAMPLES, optional=True),
    "num_canonical_nodes": _whole(1, _MOST_CANONICAL_NODES, optional=True),
    "sampling_method": _one_of("balanced", "fixed"),
    "sampling_granularity": _whole(1, _MOST_SAMPLES),
    "partition_algo": _one_of("orig", "relaxed"),
    "batching_method": _one_of("random", "stratified", "per_stream", "device_per_stream"),
    "replication": _whole(1, optional=True),
    "epoch": _whole(0, _MOST_SAMPLES),
    "num_samples": _whole(0, _MOST_SAMPLES, optional=True),
    "stream_id": _whole(0, optional=True),
    "shard_id": Argument("whole"),
    "from_beginning": _SWITCH,
    **dict.fromkeys(("blocking",), _SWITCH),
    # Who reads it.
    **dict.fromkeys(("rank", "worker"), _whole(0)),
    **dict.fromkeys(("num_ranks", "ranks_per_node", "workers_per_rank"), _whole(1)),
    # What becomes of it.
    "batch_format": _one_of("torch", "numpy", "jax", "arrow", "dict", "rows"),
    "ragged": _one_of("list", "padded", "offsets", "arrow"),
    "length": _whole(1),
    "max_length": _whole(1, optional=True),
    "column": _TEXT,
    "template": _OPTIONAL_TEXT,
    **dict.fromkeys(("cut", "padding", "add_special_tokens", "labels", "keep"), _SWITCH),
    **dict.fromkeys(("add_generation_prompt", "assistant_mask", "as_text"), _SWITCH),
    **dict.fromkeys(("filter", "batch_transform", "collate_fn", "worker_init_fn"), _FUNCTION),
    # Loading.
    "num_workers": _whole(0, 10**6),
    "prefetch_factor": _whole(1, 10**6, optional=True),
    "timeout": Argument("number", 0, _MOST_SECONDS),
    "pin_memory_device": _TEXT,
    **dict.fromkeys(("drop_last", "pin_memory", "persistent_workers", "in_order"), _SWITCH),
    # Writing.
    "out": Argument("place"),
    "size_limit": Argument("bytes", 0, _MOST_SHARD_BYTES, optional=True),
    "max_workers": _whole(1, 10**6, optional=True),
    "retry": _whole(0, _MOST_TRIES),
    "part": _whole(0, optional=True),
    "compression": _OPTIONAL_TEXT,
    "hashes": Argument("names", optional=True),
    "separator": _OPTIONAL_TEXT,
    "newline": _TEXT,
    **dict.fromkeys(
        ("keep_local", "checksums", "progress_bar", "exist_ok", "resume", "append"), _SWITCH
    ),
}
"""By name, which means the same wherever it is taken."""


def checked(
    given: Mapping[str, Any],
    *,
    required: Collection[str] = (),
    error: type[StreamingError] = SchemaError,
) -> dict[str, Any]:
    """Return arguments in the types that the code works with; those of other names as they are.

    Those that are `required` must not be None. Raises `error` for the first that is not what
    `ARGUMENTS` says.

    Example:
        >>> checked({"batch_size": 8.0, "epoch_size": "100k", "shuffle": np.True_})
        {'batch_size': 8, 'epoch_size': 100000, 'shuffle': True}
        >>> checked({"batch_size": 0})
        Traceback (most recent call last):
            ...
        streaming_core.errors.SchemaError: batch_size: expected at least 1, got 0
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        argument = ARGUMENTS.get(name)
        if argument is not None:
            if name in required:
                argument = argument._replace(optional=False)
            try:
                value = _converted(argument, value)  # noqa: PLW2901 - the same one
            except _UnexpectedError as wanted:
                raise unexpected(value, name, str(wanted), error=error) from None
        found[name] = value
    return found


def refuse_unknown(
    given: Collection[object],
    known: Collection[str],
    where: str,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise `SchemaError` for names that there are not, with what may have been meant.

    Example:
        >>> refuse_unknown({"shufle": True}, ["shuffle", "batch_size"], "Data")
        Traceback (most recent call last):
            ...
        streaming_core.errors.SchemaError: Data takes no 'shufle' (did you mean 'shuffle'?). ...
    """
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    import difflib  # noqa: PLC0415 - of use only here

    said: list[str] = []
    for name in unknown:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = hints.get(str(name)) or (f"did you mean {near[0]!r}?" if near else "")
        said.append(f"{name!r:.80}{f' ({hint})' if hint else ''}")
    msg = f"{where} takes no {', no '.join(said)}. It takes {', '.join(sorted(known))}"
    raise SchemaError(msg)


def suggests(*options: str) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Let an `__init__` tell what may have been meant by a keyword that it does not take.

    `options` are what it takes as `**options`.
    """

    def decorate(init: Callable[_P, None]) -> Callable[_P, None]:
        code = cast("FunctionType", init).__code__
        known = {*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount], *options}

        @wraps(init)
        def checked_init(*args: _P.args, **given: _P.kwargs) -> None:
            if not known.issuperset(given):
                refuse_unknown(given, known, type(args[0]).__name__)
            init(*args, **given)

        return checked_init

    return decorate


def argument_problem(name: str, value: object) -> str | None:
    """Return what is wrong with a value, None if nothing is.

    Example:
        >>> argument_problem("shuffle", "yes")
        "shuffle: expected True or False, got 'yes'"
    """
    try:
        checked({name: value})
    except SchemaError as error:
        return str(error)
    return None


def unexpected(
    value: object, name: str, wanted: str, *, error: type[StreamingError] = SchemaError
) -> StreamingError:
    """Return the error that an argument is not what it has to be.

    Example:
        >>> str(unexpected(3, "world", "a World"))
        'world: expected a World, got 3'
    """
    return error(f"{name}: expected {wanted}, got {_shown.repr(value)}")


class _UnexpectedError(Exception):
    """Says what was expected."""


def _converted(argument: Argument, value: object) -> Any:  # noqa: ANN401 - what the argument says
    if value is None and argument.optional:
        return None
    if argument.kind == "choice":
        if isinstance(value, str) and value in argument.choices:
            return value
        msg = f"one of {', '.join(argument.choices)}"
        raise _UnexpectedError(msg)
    convert, wanted = _KINDS[argument.kind]
    try:
        found = convert(value)
    except (TypeError, ValueError, ArithmeticError):
        raise _UnexpectedError(wanted) from None
    for fits, bound, words in (
        (operator.ge, argument.least, "at least"),
        (operator.gt, argument.above, "more than"),
        (operator.le, argument.most, "at most"),
    ):
        if bound is not None and not fits(found, bound):
            msg = f"{words} {bound}"
            raise _UnexpectedError(msg)
    return found


def _to_whole(value: Any) -> int:  # noqa: ANN401 - checked here
    if not isinstance(value, bool | np.bool_):
        if hasattr(value, "__index__"):
            return operator.index(value)
        if isinstance(value, Real | Decimal) and (found := int(cast("Any", value))) == value:
            return found
    raise TypeError


def _to_number(value: Any) -> float:  # noqa: ANN401 - checked here
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | Decimal):
        raise TypeError
    number = cast("Any", value)
    found: float = number if isinstance(number, int) else float(number)
    if not -float("inf") < found < float("inf"):
        raise ValueError
    return found


def _to_switch(value: Any) -> bool:  # noqa: ANN401 - checked here
    if isinstance(value, int | np.bool_) and cast("Any", value) in (0, 1):
        return bool(cast("Any", value))
    raise TypeError


def _to_text(value: Any) -> str:  # noqa: ANN401 - checked here
    if isinstance(value, str):
        return value
    raise TypeError


def _to_names(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - checked here
    if isinstance(value, str):
        raise TypeError
    return tuple(_to_text(name) for name in value)


def _to_place(value: Any) -> str:  # noqa: ANN401 - checked here
    text = _to_text(os.fspath(value))
    if _IN_NO_PLACE.search(text):
        msg = "a folder or URL without null characters and lone surrogates"
        raise _UnexpectedError(msg)
    return text


def _to_count(value: Any) -> int:  # noqa: ANN401 - checked here
    return parse_count(value) if isinstance(value, str) else _to_whole(value)


def _to_bytes(value: Any) -> int:  # noqa: ANN401 - checked here
    return parse_bytes(value) if isinstance(value, str) else _to_whole(value)


def _to_mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - checked here
    if isinstance(value, Mapping):
        given = cast("Mapping[object, Any]", value)
        if all(isinstance(name, str) for name in given):
            return cast("Mapping[str, Any]", given)
    raise TypeError


def _to_function(value: Any) -> Any:  # noqa: ANN401 - checked here
    if callable(value):
        return value
    raise TypeError


_KINDS: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "whole": (_to_whole, "a whole number"),
    "number": (_to_number, "a finite number"),
    "switch": (_to_switch, "True or False"),
    "text": (_to_text, "a text"),
    "names": (_to_names, "a list of names"),
    "place": (_to_place, "a folder or URL, as a text or a path"),
    "count": (_to_count, "a whole number, or a text such as '100k'"),
    "bytes": (_to_bytes, "a whole number of bytes, or a text such as '64mb'"),
    "mapping": (_to_mapping, "a mapping of names to values"),
    "function": (_to_function, "a function"),
}
