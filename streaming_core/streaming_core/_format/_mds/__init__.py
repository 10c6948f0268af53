"""MDS: samples as records of typed columns, found by offset."""

from streaming_core._format._mds._arrays import DTYPE_CODES, ArrayEncoding, array_header, as_array
from streaming_core._format._mds._encoding import Encoding, came, reject_masked
from streaming_core._format._mds._gather import gather_mds, no_mds
from streaming_core._format._mds._objects import Str
from streaming_core._format._mds._record import MDSColumns, config_bytes, encode_value
from streaming_core._format._mds._registry import find_encoding, mds_encodings, refuse_unsafe
from streaming_core._format._mds._scalars import Int, Scalar, is_scalar
from streaming_core._format._mds._shard import MDSShard, columns_of, shard_header
from streaming_core._format._mds._values import DECODE_ERRORS

__all__ = [
    "DECODE_ERRORS",
    "DTYPE_CODES",
    "ArrayEncoding",
    "Encoding",
    "Int",
    "MDSColumns",
    "MDSShard",
    "Scalar",
    "Str",
    "array_header",
    "as_array",
    "came",
    "columns_of",
    "config_bytes",
    "encode_value",
    "find_encoding",
    "gather_mds",
    "is_scalar",
    "mds_encodings",
    "no_mds",
    "refuse_unsafe",
    "reject_masked",
    "shard_header",
]
