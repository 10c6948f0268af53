"""Object storage of Oracle Cloud Infrastructure."""

from streaming_core._store._oci._store import OciStore, oci_from_url

__all__ = ["OciStore", "oci_from_url"]
