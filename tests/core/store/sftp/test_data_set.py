"""A data set on an SFTP server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.sftp import USER, SftpServer, make_key, temp_names

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_data_set_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the writer puts there, the reader gets, with the login that the environment names."""
    (tmp_path / "files").mkdir()
    with SftpServer(tmp_path / "files", authorized=make_key(tmp_path / "key")) as server:
        (tmp_path / "hosts").write_text(server.known_hosts)
        monkeypatch.setenv("COMPOSER_SFTP_KEY_FILE", str(tmp_path / "key"))
        monkeypatch.setenv("COMPOSER_SFTP_KNOWN_HOSTS_FILE", str(tmp_path / "hosts"))
        url = f"sftp://{USER}@127.0.0.1:{server.port}/data/set"
        samples = [{"number": number, "body": bytes([number % 256]) * 999} for number in range(500)]
        with MDSWriter(
            out=url, columns={"number": "int", "body": "bytes"}, size_limit=1 << 16
        ) as writer:
            for sample in samples:
                writer.write(sample)
        dataset = StreamingDataset(remote=url, local=str(tmp_path / "cache"), batch_size=10)
        assert [*dataset] == samples
        assert (server.folder / "data" / "set" / "index.json").is_file()
        assert list(temp_names(server.folder)) == []
