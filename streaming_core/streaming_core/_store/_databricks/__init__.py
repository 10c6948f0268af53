"""Volumes of Databricks, and its older file system."""

from streaming_core._store._databricks._dbfs import DbfsStore
from streaming_core._store._databricks._url import databricks_from_url
from streaming_core._store._databricks._volume import VolumeStore

__all__ = ["DbfsStore", "VolumeStore", "databricks_from_url"]
