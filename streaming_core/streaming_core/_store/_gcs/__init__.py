"""Google Cloud Storage: its own language with tokens, and that of S3 with HMAC keys."""

from streaming_core._store._gcs._store import GCSStore, gcs_from_url
from streaming_core._store._gcs._xml import GCSKeyStore

__all__ = ["GCSKeyStore", "GCSStore", "gcs_from_url"]
