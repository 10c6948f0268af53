"""Servers whose documents never end: the bytes read of them are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.raw import RawServer, saying
from tests.servers.web import Asked, Said, WebServer

from streaming_core import StreamingDataset
from streaming_core.errors import ObjectTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST = 4 << 20
_PLACES = {"": "streaming_reader._opening.MAX_INDEX_BYTES"}
_PLACES["/*.parquet"] = "streaming_reader._virtual.MAX_SOURCE_INDEX_BYTES"


class _Endless:
    """Answers with a document without end, and counts its bytes."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, _: Asked) -> Said:
        return Said(200, self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        while True:
            self.sent += 1 << 16
            yield b" " * (1 << 16)


@pytest.mark.parametrize("pattern", _PLACES)
def test_a_document_without_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """The index of shards, and one that is published beside other files."""
    monkeypatch.setattr(_PLACES[pattern], _MOST)
    endless = _Endless()
    with (
        WebServer(answer=endless) as server,
        pytest.raises(ObjectTooLargeError, match=f"more than the {_MOST} allowed"),
    ):
        StreamingDataset(remote=f"{server.url}{pattern}", local=str(tmp_path), batch_size=1)
    assert endless.sent < 16 * _MOST


@pytest.mark.parametrize("pattern", _PLACES)
def test_a_document_of_terabytes_is_not_begun(tmp_path: Path, pattern: str) -> None:
    """Its length tells."""
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000000\r\n\r\n{"
    with (
        RawServer(saying(said)) as server,
        pytest.raises(ObjectTooLargeError, match="5000000000000"),
    ):
        StreamingDataset(remote=f"{server.url}{pattern}", local=str(tmp_path), batch_size=1)
