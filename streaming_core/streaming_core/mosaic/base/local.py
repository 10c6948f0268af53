"""Datasets on this machine."""

from __future__ import annotations

from streaming_reader.local import LocalDataset

__all__ = ["LocalDataset"]
