"""S3 and what speaks its language."""

from streaming_core._store._s3._store import S3Store, s3_from_url

__all__ = ["S3Store", "s3_from_url"]
