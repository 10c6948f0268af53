"""Shards of separated values."""

from __future__ import annotations

from streaming_writer import CSVWriter, TSVWriter, XSVWriter

__all__ = ["CSVWriter", "TSVWriter", "XSVWriter"]
