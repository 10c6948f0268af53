"""Files on a server that speaks SFTP."""

from streaming_core._store._sftp._store import SftpStore, sftp_from_url

__all__ = ["SftpStore", "sftp_from_url"]
