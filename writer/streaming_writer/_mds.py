"""The writer of MDS shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from streaming_core._arguments import suggests
from streaming_core._attributes import open_to_subclasses
from streaming_core._format._mds import MDSColumns, config_bytes, shard_header
from streaming_writer._arrow import arrow_columns, is_arrow
from streaming_writer._kind import ShardFile
from streaming_writer._mds_batch import encode_batch
from streaming_writer._mds_rows import compile_rows, record_of
from streaming_writer._options import Options, WriterOptions
from streaming_writer._writer import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_writer._assembly import Body
    from streaming_writer._blocks import Block
    from streaming_writer._mds_rows import Rows, Sample
    from streaming_writer._output import Target

__all__ = ["MDSKind", "MDSWriter"]


class MDSKind:
    """MDS shards of one set of columns."""

    name = "mds"
    record_bytes = 4
    header_bytes = 0
    roles = ("data",)

    def __init__(self, columns: Mapping[str, str], options: Options) -> None:
        """Look the encodings up."""
        self._columns = MDSColumns(columns)
        self._block_bytes = options.block_bytes()
        self.config = self._columns.config(
            compression=options.compression,
            hashes=options.hash_names(),
            size_limit=options.limit(),
        )
        self._header = config_bytes(self.config)
        self.base_bytes = 8 + len(self._header)

    def rows(self, first: int) -> Rows:
        """Return an encoder of samples; `first` is the next sample's number."""
        return compile_rows(self._columns, first, self._block_bytes)

    def batch(self, columns: Any, first: int) -> Block | None:  # noqa: ANN401 - a mapping or Arrow table
        """Encode a batch of columns."""
        if is_arrow(columns):
            texts = dict(zip(self._columns.names, self._columns.texts, strict=True))
            columns = arrow_columns(columns, texts)
        return encode_batch(self._columns, columns, first)

    def record(self, sample: Sample) -> bytes:
        """Encode one sample on its own."""
        return record_of(self._columns, sample)

    def files(self, body: Body) -> list[ShardFile]:
        """Return the file of a shard whose records lie in `body`."""
        return [ShardFile("data", ".mds", body.headed(shard_header(body.lengths, self._header)))]


@open_to_subclasses
class MDSWriter(Writer):
    """Writes samples as MDS shards and an index, as mosaicml-streaming writes and reads them.

    Example:
        >>> import tempfile
        >>> from streaming_core import MDSWriter, load_index
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder + "/data", columns={"text": "str", "label": "int"}) as out:
        ...     for i in range(3):
        ...         out.write({"text": f"sample {i}", "label": i})
        >>> load_index(folder + "/data").num_samples
        3

    Args:
        columns: Encoding of each column by name; see `mds_encodings`. None takes them from the
            first samples, or, on `resume` and `append`, from what is there.
        out: A folder, a URL, or a pair (folder, URL). A pair with `keep_local` writes to both.
        keep_local: Keep the folder's copy where there is also a URL.
        compression: `br`, `bz2`, `gz`, `snappy` or `zstd`, with a level as in `zstd:7`.
        hashes: Hashes of every file to put into the index.
        checksums: Write a fast hash of every file to `checksums.xxh128` beside the index. Readers
            compare with it, `streaming-core verify` too, and `xxhsum --check` understands it.
        size_limit: The most bytes of an uncompressed shard, as a number or a text like `64mb`; None
            for no limit but the format's own of 4 GiB.
        progress_bar: Show samples, bytes and rates on standard error.
        max_workers: Threads that hash, compress and store shards; the files do not depend on it.
        retry: How often a put to a remote store is tried.
        exist_ok: Delete everything at `out` first.
        resume: Go on with a conversion that was killed, after its last durable shard: skip
            `num_safe_samples` of the source and write the rest. Starts anew where there is none.
        append: Add shards to a finished data set. Its index stays valid until the new one replaces
        it.
        part: Write into a folder of its own below `out`, one for each process; `merge_index` joins
            them.
        storage_options: What the store of a URL takes beyond it, such as credentials: names and
            values, or a function that returns them, which is called again when they have run out.
            They are in no file that is written.
    """

    @suggests(*WriterOptions.__annotations__)
    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        out: Target,
        **options: Unpack[WriterOptions],
    ) -> None:
        """Lock the output and get ready; raises what the settings or the output do not allow."""
        super().__init__(MDSKind, columns, out, Options(**options))

    # --- settings, as the index has them ----------------------------------------------------------

    @property
    def column_names(self) -> list[str]:
        """The columns, in the order in which a record has them."""
        return self._streaming_engine.kind().config["column_names"]  # type: ignore[no-any-return]

    @property
    def column_encodings(self) -> list[str]:
        """The encoding of each column."""
        return self._streaming_engine.kind().config["column_encodings"]  # type: ignore[no-any-return]

    @property
    def column_sizes(self) -> list[int | None]:
        """Bytes of the values of each column, None where they vary."""
        return self._streaming_engine.kind().config["column_sizes"]  # type: ignore[no-any-return]

    @property
    def compression(self) -> str | None:
        """Such as `zstd:7`, or None."""
        return self._streaming_engine.options.compression

    @property
    def hashes(self) -> list[str]:
        """The hashes that the index gets of each file."""
        return list(self._streaming_engine.options.hash_names())

    @property
    def size_limit(self) -> int | None:
        """The most bytes of an uncompressed shard; None for no limit but the format's own."""
        return self._streaming_engine.options.limit()

    @property
    def keep_local(self) -> bool:
        """Whether the folder's copy stays where there is also a URL."""
        return self._streaming_engine.options.keep_local

    @property
    def remote(self) -> str | None:
        """The URL that is written to, or None if all stays in a folder."""
        return self._streaming_engine.output.remote
