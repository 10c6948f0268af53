"""Every argument of the public interface: what it cannot be is an error at once, of one form."""

from __future__ import annotations

import inspect
import json
import re
import sys
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streaming_core import (
    CSVWriter,
    JSONWriter,
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    Transforms,
    TSVWriter,
    World,
    XSVWriter,
    chat_template,
    create_dataloader,
    load_index,
    merge_index,
    open_store,
    pack,
    tokenize,
)
from streaming_core.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COLUMNS = {"id": "int"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 40 samples."""
    folder = tmp_path_factory.mktemp("arguments") / "data"
    with MDSWriter(out=folder, columns=COLUMNS) as writer:
        for number in range(40):
            writer.write({"id": number})
    return folder


def _dataset(data: Path, **given: Any) -> StreamingDataset:
    return StreamingDataset(**{"local": data, "batch_size": 4, **given})


MISSPELLED: list[tuple[Any, dict[str, Any], str]] = [
    (StreamingDataset, {"shufle": True}, "shuffle"),
    (type("Mine", (StreamingDataset,), {}), {"locl": "here"}, "local"),
    (Stream, {"propotion": 1.0}, "proportion"),
    (LocalDataset, {"splitt": "a"}, "split"),
    (StreamingDataLoader, {"dataset": [], "numworkers": 2}, "num_workers"),
    (MDSWriter, {"out": "new", "columns": COLUMNS, "compresion": "zstd"}, "compress"),
    (JSONWriter, {"out": "new", "columns": COLUMNS, "newlin": "a"}, "newline"),
    (CSVWriter, {"out": "new", "columns": COLUMNS, "seperator": ";"}, "separator"),
    (create_dataloader, {"batch_size": 4, "seed": 1}, "shuffle_seed"),
]


@pytest.mark.parametrize(("function", "given", "meant"), MISSPELLED)
def test_a_misspelled_argument_is_told_what_it_is_called(
    function: Any,
    given: dict[str, Any],
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an error that is a `TypeError`, as Python's own, before anything is done."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=rf"takes no '\w+' \((did you mean|it is) .?{meant}"):
        function(**given)
    assert not list(tmp_path.iterdir())


def test_a_loader_has_the_batch_size_of_its_dataset(data: Path) -> None:
    """Unless it is told another one, which is then an error; without one, torch's default."""
    assert StreamingDataLoader(_dataset(data)).batch_size == 4
    assert [len(batch["id"]) for batch in StreamingDataLoader(_dataset(data))] == [4] * 10
    assert StreamingDataLoader(_dataset(data, batch_size=None)).batch_size == 1
    assert StreamingDataLoader(LocalDataset(data)).batch_size == 1
    assert StreamingDataLoader(_dataset(data), None).batch_size is None
    with pytest.raises(StreamingError, match="the loader has batch_size=1, its dataset 4"):
        StreamingDataLoader(_dataset(data), 1)


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "StreamingDataset": (StreamingDataset, _dataset),
    "Stream": (
        Stream,
        lambda data, **given: StreamingDataset(
            streams=[Stream(**{"local": data, **given})], batch_size=4
        ),
    ),
    "LocalDataset": (LocalDataset, lambda data, **given: LocalDataset(**{"local": data, **given})),
    "StreamingDataLoader": (
        StreamingDataLoader,
        lambda data, **given: StreamingDataLoader(_dataset(data), **{"batch_size": 4, **given}),
    ),
    "create_dataloader": (
        create_dataloader,
        lambda data, **given: create_dataloader(
            **{"path": data, "batch_size": 4, "rank": 0, "num_ranks": 1, **given}
        ),
    ),
    "batches": (StreamingDataset.batches, lambda data, **given: _dataset(data).batches(**given)),
    "take": (StreamingDataset.take, lambda data, **given: _dataset(data).take([1], **given)),
    "take, local": (LocalDataset.take, lambda data, **given: LocalDataset(data).take([1], **given)),
    "set_epoch": (
        StreamingDataset.set_epoch,
        lambda data, **given: _dataset(data).set_epoch(**given),
    ),
    "resample_streams": (
        StreamingDataset.resample_streams,
        lambda data, **given: _dataset(data).resample_streams(**{"epoch": 0, **given}),
    ),
    "prepare_shard": (
        StreamingDataset.prepare_shard,
        lambda data, **given: _dataset(data).prepare_shard(**{"shard_id": 0, **given}),
    ),
    "evict_shard": (
        StreamingDataset.evict_shard,
        lambda data, **given: _dataset(data).evict_shard(**given),
    ),
    "state_dict": (
        StreamingDataset.state_dict,
        lambda data, **given: _dataset(data).state_dict(**given),
    ),
    "World": (World, lambda _, **given: World(**given)),
    "Transforms": (Transforms.of, lambda _, **given: Transforms.of(**given)),
    "pack": (pack, lambda _, **given: pack(**{"length": 4, **given})),
    "tokenize": (tokenize, lambda _, **given: tokenize(**{"tokenizer": "a", **given})),
    "chat_template": (
        chat_template,
        lambda _, **given: chat_template(**{"tokenizer": "a", **given}),
    ),
    **{
        writer.__name__: (
            writer,
            lambda data, writer=writer, **given: writer(
                **{
                    "out": data.parent / "out",
                    "columns": COLUMNS,
                    **({"separator": "|"} if writer is XSVWriter else {}),
                    **given,
                }
            ),
        )
        for writer in (MDSWriter, JSONWriter, XSVWriter, CSVWriter, TSVWriter)
    },
}
"""Public signatures, and how to call each with some arguments."""

NAN = float("nan")
ODD: list[Any] = [object(), [object()], {1: 2}, b"x", 1 + 0j, np.array([1, 2])]
NO_NUMBER: list[Any] = [*ODD, "many", "", -1, NAN, float("inf"), True, np.True_, 10**30, "9" * 5000]
HOSTILE: dict[str, list[Any]] = {
    "Sequence": [3, object(), [3], [object()], {1: 2}],
    "Mapping": [3, "x", [1]],
    "StorageOptions": [3, "x", [1]],
    "Target": [3, object(), [3], (1, 2, 3), {1: 2}],
    "World": [3, "world", object()],
    "Transforms": [3, str, [len]],
    "Callable": [object(), [object()], "f", 3],
    "Literal": [*ODD, 3, "nonsense", ""],
    "int": [*NO_NUMBER, 2.5, Decimal("sNaN"), Fraction(1, 2)],
    "float": [*NO_NUMBER, Decimal("sNaN")],
    "bool": [*ODD, "yes", "", 2, -1, NAN],
    "str": [*ODD, 3, NAN],
}
"""What an argument cannot be, by what its annotation has in it; the first that it has."""
NAMED: dict[str, str] = {
    **dict.fromkeys(("sampling_method", "partition_algo", "shuffle_algo"), "Literal"),
    **dict.fromkeys(("batching_method", "batch_format", "ragged"), "Literal"),
    **dict.fromkeys(("transform", "filter", "batch_transform"), "Callable"),
    "nulls": "Mapping",
    "tokenizer": "Sequence",
}
"""Those whose annotation says too little."""
NOT_CHECKED = {"self", "dataset", "ids", "filters", "path"} | {
    # Torch checks these.
    *("sampler", "batch_sampler", "generator", "multiprocessing_context"),
}


def _arguments(function: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield all arguments, those of typed `**options` included."""
    for name, parameter in inspect.signature(function).parameters.items():
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if not unpacked:
            yield name, parameter
            continue
        options = getattr(sys.modules[function.__module__], unpacked[1])
        for option, annotation in options.__annotations__.items():
            yield option, parameter.replace(annotation=annotation.__forward_arg__)


def _hostile(parameter: inspect.Parameter, name: str) -> list[Any]:
    annotation = str(parameter.annotation)
    kind = NAMED.get(name) or next((kind for kind in HOSTILE if kind in annotation), None)
    assert kind is not None, f"nothing says what {name}: {annotation} cannot be"
    values = HOSTILE[kind]
    if name == "part":  # or a name
        values = [value for value in values if not isinstance(value, str) or not value]
    if name == "shard_id":  # for numbers out of range there is an `IndexError`
        values = [value for value in values if type(value) is not int]
    is_optional = "None" in annotation or parameter.default is None
    return values if is_optional or name in NAMED else [*values, None]


NO_PLACES: dict[str, Callable[[str], object]] = {
    "remote": lambda bad: StreamingDataset(remote=bad, batch_size=1),
    "local": lambda bad: StreamingDataset(local=bad, batch_size=1),
    "split": lambda bad: StreamingDataset(local="here", split=bad, batch_size=1),
    "remote of a stream": lambda bad: Stream(remote=bad),
    "local of samples": LocalDataset,
    "out": lambda bad: MDSWriter(out=bad, columns=COLUMNS),
    "out of two": lambda bad: MDSWriter(out=("here", bad), columns=COLUMNS),
    "url_or_path of an index": load_index,
    "url_or_path of a store": open_store,
    "url_or_path of indexes": merge_index,
}


@pytest.mark.parametrize("bad", ["\0", "fol\0der", "s3://bucket/fol\0der", "\ud800"])
@pytest.mark.parametrize("name", NO_PLACES)
def test_no_folder_has_such_a_name(name: str, bad: str) -> None:
    """The system would say only that a null byte is embedded, after some of it was done."""
    wanted = f"^{name.split(maxsplit=1)[0]}: expected a folder or URL without null characters"
    with pytest.raises(StreamingError, match=wanted):
        NO_PLACES[name](bad)


CASES = {
    f"{call}-{name}": (call, name, parameter)
    for call, (function, _) in CALLS.items()
    for name, parameter in _arguments(function)
    if name not in NOT_CHECKED
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_argument_cannot_be_is_refused_at_once(data: Path, case: str) -> None:
    """By the call itself, not by what is done with its result; the error names the argument."""
    call, name, parameter = CASES[case]
    for value in _hostile(parameter, name):
        with pytest.raises(StreamingError, match=name):
            CALLS[call][1](data, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        *(("predownload", value, "a whole number") for value in (2.5, NAN, "8", True)),
        ("predownload", -500, "at least 0"),
    ],
)
def test_what_an_attribute_cannot_be_is_refused_as_well(
    data: Path, name: str, value: object, wanted: str
) -> None:
    """Those that may be set; what was there stays."""
    dataset = _dataset(data)
    before = getattr(dataset, name)
    with pytest.raises(StreamingError, match=f"^{name}: expected {wanted}, got"):
        setattr(dataset, name, value)
    assert getattr(dataset, name) == before
    dataset.predownload = np.int64(3)  # type: ignore[assignment]
    assert repr(dataset.predownload) == "3"
    dataset.predownload = None
    assert dataset.predownload == 32


@pytest.mark.parametrize(
    ("name", "value"), [("choose", 2.5), ("choose", "x"), ("proportion", NAN), ("repeat", -1)]
)
def test_what_a_stream_cannot_be_set_to_is_refused(data: Path, name: str, value: object) -> None:
    """By the data set that is made of it."""
    stream = Stream(local=data)
    setattr(stream, name, value)
    with pytest.raises(StreamingError, match=f"^{name}: expected"):
        StreamingDataset(streams=[stream], batch_size=4)


def test_streams_and_shards_that_there_are_not_are_refused(data: Path) -> None:
    """No numbers of samples come for them, and their number may have any type."""
    streams = [Stream(local=data), Stream(local=data)]
    dataset = StreamingDataset(streams=streams, batch_size=4)
    expected = dataset.resample_streams(0, 1)[1].tolist()
    assert expected == list(range(40, 80))
    for one in (np.int64(1), 1.0):
        assert dataset.resample_streams(0, one)[1].tolist() == expected  # type: ignore[arg-type]
        dataset.prepare_shard(one)  # type: ignore[arg-type]
        assert not dataset.evict_shard(one)  # type: ignore[arg-type]
    with pytest.raises(StreamingError, match=r"^stream_id: expected at most 1, got 2$"):
        dataset.resample_streams(0, 2)
    for number in (-1, 2, 10**30):
        for act in (dataset.prepare_shard, dataset.evict_shard):
            with pytest.raises(IndexError, match=f"shard {number} is out of range: there are 2"):
                act(number)


@pytest.mark.parametrize("kind", [float, np.float32, np.int64, np.uint8, Fraction, Decimal])
def test_whole_numbers_may_have_any_type(data: Path, kind: Callable[[int], Any]) -> None:
    """They are the same as integers, in checkpoints too."""
    numbers = {
        "batch_size": 4,
        "predownload": 8,
        "epoch_size": 20,
        "shuffle_seed": 2,
        "shuffle_block_size": 100,
        "num_canonical_nodes": 2,
        "sampling_granularity": 1,
        "replication": 1,
        "download_retry": 1,
        "cache_limit": 100,
    }
    plain = _dataset(data, shuffle=True, **numbers)
    other = _dataset(data, shuffle=np.True_, **{n: kind(v) for n, v in numbers.items()})
    taken = iter(plain), iter(other)
    assert [next(taken[0]) for _ in range(8)] == [next(taken[1]) for _ in range(8)]
    state = other.state_dict(num_samples=kind(8))
    assert json.dumps(state) == json.dumps(plain.state_dict(num_samples=8))
    resumed = _dataset(data, shuffle=True, **numbers)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert list(resumed) == list(taken[0])
    loader = StreamingDataLoader(plain, kind(4), num_workers=kind(0), timeout=kind(0))
    assert len(list(loader)) == 5


LARGE = {
    "batch_size": 1 << 24,
    "predownload": 2**53,
    "shuffle_seed": 2**63 - 1,
    "shuffle_block_size": 2**53,
    "sampling_granularity": 2**53,
    "cache_limit": 2**63 - 1,
    "download_retry": 1000,
    "download_timeout": 1e9,
}


def test_larger_numbers_are_refused(data: Path) -> None:
    """Because something further on could not hold them."""
    for name, value in LARGE.items():
        with pytest.raises(StreamingError, match=f"{name}: expected at most"):
            _dataset(data, **{name: value + 1})


@pytest.mark.parametrize("name", sorted(LARGE.keys() - {"batch_size"}))  # that takes seconds
@pytest.mark.parametrize("algorithm", ["py1e", "py1s", "py2s", "py1br", "windowed"])
def test_what_is_taken_can_be_used(data: Path, name: str, algorithm: str, tmp_path: Path) -> None:
    """Also the largest numbers, whatever they are good for."""
    given = {"remote": data, "local": tmp_path, "shuffle": True, "shuffle_algo": algorithm}
    dataset = _dataset(data, **{**given, name: LARGE[name]})
    assert sorted({sample["id"] for sample in dataset}) == list(range(40))
    assert sum(len(batch["id"]) for batch in dataset.batches()) >= 40
