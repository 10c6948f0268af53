"""Writing data sets: samples and columns to shards, an index last."""

from streaming_writer._mds import MDSWriter
from streaming_writer._merge import merge_index
from streaming_writer._text import CSVWriter, JSONWriter, TSVWriter, XSVWriter

__all__ = ["CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter", "merge_index"]
