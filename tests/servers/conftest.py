"""Which files of this folder pytest does not import for their doctests."""

from __future__ import annotations

collect_ignore = ["sftp_sessions.py"]
"""It imports asyncssh, which takes long; only the tests that need it do."""
