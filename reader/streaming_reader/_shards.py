"""The shards of a dataset, one by one: what the index says of each, and its samples."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from streaming_core._format._mds import refuse_unsafe
from streaming_core._index import parse_index
from streaming_reader._cache import CacheSettings, ShardCache

if TYPE_CHECKING:
    from streaming_core._format import Shard
    from streaming_core._index import FileInfo
    from streaming_reader._catalogue import Catalogue

__all__ = ["ShardReader", "Shards"]


class ShardReader(Sequence[dict[str, Any]]):
    """One shard: what the index says of it, and its samples by number.

    `dataset.shards` has those of a dataset, which are fetched when their samples are read. One
    whose files lie in a folder is made of its entry in `index.json`:

    Example:
        >>> import json, pathlib, tempfile
        >>> from streaming_core import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as out:
        ...     out.write({"x": 7})
        >>> entry = json.loads(pathlib.Path(folder, "index.json").read_text())["shards"][0]
        >>> shard = ShardReader(folder, None, **entry)
        >>> len(shard), shard.column_names, shard[0]
        (1, ['x'], {'x': 7})
    """

    def __init__(
        self,
        dirname: str | os.PathLike[str],
        split: str | None = None,
        **entry: Any,  # noqa: ANN401 - JSON
    ) -> None:
        """Take the folder of the dataset, the sub-folder in there, and the shard's entry.

        An entry without `format` and `version` is of MDS, version 2.

        Raises:
            IndexInvalidError: The entry does not describe a shard; lists what is wrong.
        """
        shard = {"format": "mds", "version": 2, **entry}
        folder = os.path.join(dirname, split or "")  # noqa: PTH118 - keeps the text as it is
        table = parse_index(json.dumps({"shards": [shard], "version": 2}).encode(), folder)
        self._cache = ShardCache(table, None, folder, CacheSettings(allow_unsafe=True))
        self._number = 0
        self._validated = False
        self.info = table.shard(0)
        """What the index says."""
        self.dirname = os.fspath(dirname)
        """The folder of the dataset on this machine."""
        self.split = split or ""
        """The sub-folder in there, or nothing."""

    @classmethod
    def of(cls, catalogue: Catalogue, shard: int, dirname: str, split: str) -> ShardReader:
        """Return a shard of a dataset, which decided what may be decoded when it was opened."""
        found = cls.__new__(cls)
        found._cache, found._number = catalogue.place(shard)  # noqa: SLF001 - one of ours
        found._validated = True  # noqa: SLF001 - one of ours
        found.info = catalogue.info(shard)
        found.dirname, found.split = dirname, split
        return found

    # --- what the index says ----------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.info.samples

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.info.samples

    @property
    def compression(self) -> str | None:
        """Such as `zstd:7`, or None."""
        return self.info.schema.compression

    @property
    def hashes(self) -> list[str]:
        """The hashes that the index has of each file."""
        return list(self.info.schema.hashes)

    @property
    def size_limit(self) -> int | str | None:
        """The size at which shards were cut."""
        return self.info.schema.size_limit

    @property
    def column_names(self) -> list[str]:
        """The columns, in the order in which a record has them."""
        return list(self.info.schema.column_names)

    @property
    def column_encodings(self) -> list[str]:
        """The encoding of each column."""
        return list(self.info.schema.column_encodings)

    @property
    def column_sizes(self) -> list[int | None]:
        """Bytes of the values of each column, None where they vary; only MDS has them."""
        return list(self.info.schema.column_sizes)

    @property
    def raw_data(self) -> FileInfo:
        """The data file, decompressed: name, size, hashes."""
        return self.info.raw

    @property
    def zip_data(self) -> FileInfo | None:
        """The data file, compressed; None without compression."""
        return self.info.zip

    @property
    def raw_meta(self) -> FileInfo | None:
        """The file of offsets, decompressed; None for MDS."""
        return self.info.raw_meta

    @property
    def zip_meta(self) -> FileInfo | None:
        """The file of offsets, compressed; None without compression."""
        return self.info.zip_meta

    def get_raw_size(self) -> int:
        """Return the bytes of the files, decompressed."""
        meta = self.info.raw_meta
        return self.info.raw.bytes + (meta.bytes if meta else 0)

    # --- samples ----------------------------------------------------------------------------------

    def validate(self, allow_unsafe_types: bool) -> None:  # noqa: FBT001 - the reference's signature
        """Refuse columns whose decoding can run code, unless these are allowed.

        Raises:
            UnsafeEncodingError: There are some. It is a `ValueError` too.
        """
        if not allow_unsafe_types:
            refuse_unsafe(self.info.schema, self.info.raw.basename)
        self._validated = True

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.info.samples

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return a sample, counted from either end, or those of a slice."""
        found = self._opened()
        if isinstance(at, slice):
            return [found.row(row) for row in range(*at.indices(len(self)))]
        return found.row(at + len(self) if at < 0 else at)

    def get_item(self, idx: int) -> dict[str, Any]:
        """Return a sample."""
        return self[idx]

    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of a sample, not decoded."""
        return self._opened().record(idx)

    def _opened(self) -> Shard:
        if not self._validated:
            self.validate(allow_unsafe_types=False)
        return self._cache.open(self._number)

    def __repr__(self) -> str:
        return f"ShardReader({self.info.raw.basename!r}, samples={self.samples})"


class Shards(Sequence[ShardReader]):
    """All shards of a dataset, made when looked at."""

    def __init__(self, catalogue: Catalogue, folders: Sequence[tuple[str, str]]) -> None:
        """Take the shards, and the folder and split of each stream."""
        self._catalogue = catalogue
        self._folders = folders

    def __len__(self) -> int:
        return self._catalogue.num_shards

    @overload
    def __getitem__(self, at: int) -> ShardReader: ...
    @overload
    def __getitem__(self, at: slice) -> list[ShardReader]: ...
    def __getitem__(self, at: int | slice) -> ShardReader | list[ShardReader]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            msg = f"shard {at} is out of range: there are {len(self)}, counted from 0"
            raise IndexError(msg)
        shard = at % len(self)
        stream = int(self._catalogue.stream_per_shard[shard])
        return ShardReader.of(self._catalogue, shard, *self._folders[stream])
