"""Storage options reach the store of each stream, and nothing else."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.remote.serving import write
from tests.servers.web import Asked, Said, WebServer

from streaming_core import Stream, StreamingDataLoader, StreamingDataset, load_index
from streaming_core._store._http._wire import basic
from streaming_core.errors import AccessDeniedError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_TOKEN = "Bearer very-secret"  # noqa: S105 - of a test
_OPTIONS = {"headers": {"Authorization": _TOKEN}}


class _Door:
    """Lets in who has the token that holds now."""

    def __init__(self) -> None:
        self.token = _TOKEN
        self.refused = 0

    def __call__(self, asked: Asked) -> Said | None:
        if asked.headers.get("authorization") == self.token:
            return None
        self.refused += 1
        return Said(401, b"who are you?")


@pytest.fixture
def door() -> _Door:
    """Return what guards the server."""
    return _Door()


@pytest.fixture
def url(tmp_path: Path, door: _Door) -> Generator[str]:
    """Serve two data sets to those who have the token."""
    write(tmp_path / "remote/a", 40)
    write(tmp_path / "remote/b", 30)
    with WebServer(tmp_path / "remote", answer=door) as server:
        yield server.url


def _ids(dataset: StreamingDataset) -> list[int]:
    return sorted(sample["id"] for sample in dataset)


def test_options_of_the_data_set_are_those_of_its_streams(url: str, tmp_path: Path) -> None:
    """A stream's own come first; a folder among the streams is read without any."""
    write(tmp_path / "folder", 20)
    streams = [
        Stream(remote=f"{url}/a", local=tmp_path / "la"),
        Stream(remote=tmp_path / "folder", local=tmp_path / "lf"),
    ]
    dataset = StreamingDataset(streams=streams, batch_size=4, storage_options=_OPTIONS)
    assert _ids(dataset) == sorted([*range(40), *range(20)])
    own = Stream(remote=f"{url}/b", local=tmp_path / "lb", storage_options=_OPTIONS)
    wrong: Any = {"headers": {"Authorization": "wrong"}}
    assert _ids(StreamingDataset(streams=[own], batch_size=4, storage_options=wrong)) == [
        *range(30)
    ]
    with pytest.raises(AccessDeniedError, match="401"):
        StreamingDataset(remote=f"{url}/b", local=str(tmp_path / "lc"), storage_options=wrong)
    assert load_index(f"{url}/a", storage_options=_OPTIONS).num_samples == 40


def test_a_function_is_asked_again_when_it_has_run_out(
    url: str, door: _Door, tmp_path: Path
) -> None:
    """An epoch goes on across a change of credentials."""
    tokens = ["Bearer first"]
    door.token = tokens[0]

    def options() -> dict[str, Any]:
        return {"headers": {"Authorization": tokens[-1]}}

    dataset = StreamingDataset(
        remote=f"{url}/a", local=str(tmp_path / "l"), batch_size=1, storage_options=options,
        predownload=1,
    )  # fmt: skip
    samples = iter(dataset)
    ids = [next(samples)["id"] for _ in range(10)]
    tokens.append("Bearer second")
    door.token = tokens[-1]
    ids += [sample["id"] for sample in samples]
    assert ids == list(range(40))


@pytest.mark.process
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_them(url: str, tmp_path: Path, context: str) -> None:
    """A worker that is started anew fetches with the same credentials."""
    dataset = StreamingDataset(
        remote=f"{url}/a", local=str(tmp_path / "l"), batch_size=4, storage_options=_OPTIONS
    )
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context=context
    )
    assert sorted(int(i) for batch in loader for i in batch["id"]) == list(range(40))


def test_nobody_sees_them(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in what is shown, logged, checkpointed, pickled, kept in the folder, or raised."""
    caplog.set_level("DEBUG")
    local = tmp_path / "l"
    stream = Stream(remote=f"{url}/a", local=local, storage_options=_OPTIONS)
    dataset = StreamingDataset(streams=[stream], batch_size=4, storage_options=_OPTIONS)
    assert _ids(dataset) == list(range(40))
    seen = [
        repr(stream),
        repr(stream._streaming_engine.settings),
        repr(dataset),
        repr(dataset._streaming_engine.catalogue.caches),
        json.dumps(dataset.state_dict(4)),
        repr(vars(dataset)),
        caplog.text,
    ]
    assert "storage_options" not in repr(stream)
    pickled = [pickle.dumps(each) for each in (stream, dataset, stream._streaming_engine.settings)]
    kept = [path.read_bytes() for path in local.rglob("*") if path.is_file()]
    for text in [*map(str.encode, seen), *pickled, *kept]:
        assert b"very-secret" not in text
    with pytest.raises(AccessDeniedError) as caught:
        StreamingDataset(
            remote=f"{url}/a",
            local=str(tmp_path / "m"),
            storage_options={"headers": {"Authorization": "Bearer very-secret-too"}},
        )
    assert "very-secret" not in str(caught.value)


def test_options_that_stayed_behind_are_an_error_when_they_are_needed(
    url: str, tmp_path: Path
) -> None:
    """A stream that was pickled says so; a copy in this process has them; a function travels."""
    stream = Stream(remote=f"{url}/a", local=tmp_path / "l", storage_options=_OPTIONS)
    for again in (copy.copy(stream), copy.deepcopy(stream)):
        assert StreamingDataset(streams=[again], batch_size=1).num_samples == 40
    lost = pickle.loads(pickle.dumps(stream))
    with pytest.raises(AccessDeniedError, match="not in the pickle"):
        StreamingDataset(streams=[lost], batch_size=1)
    travels = Stream(remote=f"{url}/b", local=tmp_path / "k", storage_options=_module_options)
    travels = pickle.loads(pickle.dumps(travels))
    assert StreamingDataset(streams=[travels], batch_size=1).num_samples == 30


_SECRETS = ("pass55", "sig66", "user44")


@pytest.fixture
def signed_url(url: str, door: _Door) -> str:
    """Return a URL with all that may be secret; the server lets in whom it names."""
    door.token = basic("user44", "pass55")
    return f"{url.replace('://', '://user44:pass55@')}/a"


def test_nobody_sees_what_a_url_says_of_who_we_are(signed_url: str, tmp_path: Path) -> None:
    """Not in what is shown, checkpointed, pickled, or kept; other pickles of it stay usable."""
    local = tmp_path / "l"
    whole = StreamingDataset(remote=signed_url, local=str(local), batch_size=4)
    stream = Stream(remote=signed_url, local=local)
    mixed = StreamingDataset(streams=[stream], batch_size=4)
    query = Stream(remote="https://host/a?sig=sig66", local=local, index="az://c/i?sig=sig66")
    for dataset in (whole, mixed):
        assert _ids(dataset) == list(range(40))
    seen: list[object] = [
        *(
            stream,
            query,
            query.remote,
            query._streaming_engine.settings,
            whole.streams,
            mixed.streams,
        ),
        *(
            stream._streaming_engine.url,
            stream._streaming_engine.source,
            whole._streaming_engine.catalogue.caches,
            json.dumps(whole.state_dict(4)),
        ),
    ]
    pickled = [
        pickle.dumps(each)
        for each in (whole, mixed, stream, query, stream._streaming_engine.settings)
    ]
    kept = [path.read_bytes() for path in local.rglob("*") if path.is_file()]
    for text in [*(repr(each).encode() for each in seen), *pickled, *kept]:
        assert not [secret for secret in _SECRETS if secret.encode() in text]
    assert "127.0.0.1" in repr(stream)
    assert stream.remote == signed_url  # who asks for it is given it
    assert _ids(pickle.loads(pickled[0])) == list(range(40))  # all of it is here


def test_a_url_that_lost_its_secrets_is_an_error_when_it_is_needed(
    signed_url: str, tmp_path: Path
) -> None:
    """Twice pickled as well; a copy in this process has them."""
    stream = Stream(remote=signed_url, local=tmp_path / "l", split="")
    for again in (copy.copy(stream), copy.deepcopy(stream)):
        assert StreamingDataset(streams=[again], batch_size=1).num_samples == 40
    lost = pickle.loads(pickle.dumps(stream))
    for gone in (lost, pickle.loads(pickle.dumps(lost)), copy.deepcopy(lost)):
        with pytest.raises(AccessDeniedError, match="user, password and query of http://127"):
            StreamingDataset(streams=[gone], batch_size=1)
    unplaced = pickle.loads(pickle.dumps(Stream(remote=signed_url)))
    with pytest.raises(AccessDeniedError, match="not in the pickle"):
        _ = unplaced.local


@pytest.mark.process
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_the_whole_url(signed_url: str, tmp_path: Path, context: str) -> None:
    """A worker that is started anew fetches as whom the URL names."""
    dataset = StreamingDataset(remote=signed_url, local=str(tmp_path / "l"), batch_size=4)
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context=context
    )
    assert sorted(int(i) for batch in loader for i in batch["id"]) == list(range(40))


@pytest.mark.process
def test_a_process_has_the_whole_url_only_if_it_is_started_with_it(
    signed_url: str, tmp_path: Path
) -> None:
    """What is sent to it later is an ordinary pickle."""
    stream = Stream(remote=signed_url, local=str(tmp_path / "m"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(_module_options)  # it has been started
        with pytest.raises(AccessDeniedError, match="not in the pickle"):
            pool.apply(_url_of, (stream,))
    process = multiprocessing.get_context("spawn").Process(target=_check_url, args=(stream,))
    process.start()
    process.join(200)
    assert process.exitcode == 0


def _url_of(stream: Stream) -> str:
    return str(stream._streaming_engine.url)


def _check_url(stream: Stream) -> None:
    assert "user44:pass55" in _url_of(stream)


@pytest.mark.parametrize(
    "remote",
    [
        "/data/set?1",
        "s3://bucket/set#1",
        "s3://bucket/year=20?4/*.parquet",
        "abfss://container@account.dfs.core.windows.net/set",
        "oci://bucket@namespace/set",
        "sftp://user@host/set",
        "hf://datasets/a/b@main/set",
        "dbfs:/set@1",
    ],
)
def test_urls_without_secrets_are_shown_and_travel_whole(remote: str, tmp_path: Path) -> None:
    """Users of other machines, buckets and patterns are no secrets."""
    stream = Stream(remote=remote, local=tmp_path)
    assert repr(remote) in repr(stream)
    assert pickle.loads(pickle.dumps(stream)).remote == remote


@pytest.mark.parametrize(
    "remote",
    [
        "https://pass55@host/a",
        "https://host/a?pass55",
        "HTTPS:/user:pass55@host/a",
        "sftp://me:pass55@host/a",
        "fsspec+ftp://me:pass55@host/a",
        "az://container/a?sig=pass55",
        "dbfs:/me:pass55@host/a",
    ],
)
def test_urls_with_secrets_are_neither_shown_nor_travel(remote: str, tmp_path: Path) -> None:
    """Well-formed or not."""
    stream = Stream(remote=remote, local=tmp_path)
    assert "pass55" not in repr(stream)
    assert b"pass55" not in pickle.dumps(stream)


def _module_options() -> dict[str, Any]:
    return _OPTIONS


@pytest.mark.parametrize("given", ["text", 3, ["headers"]])
def test_what_are_no_options_is_refused(given: Any) -> None:
    """When the stream is made."""
    with pytest.raises(SchemaError, match="storage_options: expected a mapping"):
        Stream(local="a", storage_options=given)


def test_options_that_the_store_does_not_know_are_named(url: str, tmp_path: Path) -> None:
    """Also a folder's, if they were given for it."""
    for remote in (f"{url}/a", str(tmp_path / "remote/a")):
        stream = Stream(remote=remote, local=tmp_path / "l", storage_options={"colour": 1})
        with pytest.raises(SchemaError, match="colour"):
            StreamingDataset(streams=[stream], batch_size=1)
