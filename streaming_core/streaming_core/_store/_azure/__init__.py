"""Azure Blob Storage, and Data Lake Storage Gen2 through the same door."""

from streaming_core._store._azure._store import AzureStore, azure_from_url

__all__ = ["AzureStore", "azure_from_url"]
