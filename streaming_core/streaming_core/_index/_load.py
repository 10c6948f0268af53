"""From a place to its table, with help for those who look in the wrong place."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final

from streaming_core._index._judge import INDEX_NAME
from streaming_core._index._parse import MAX_INDEX_BYTES, parse_index
from streaming_core._store import LocalStore, Store, open_store
from streaming_core.errors import IndexMissingError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from streaming_core._index._table import ShardTable
    from streaming_core._store import StorageOptions

__all__ = ["SINGLE_MEDIA", "is_media", "load_index", "read_index"]

_JOURNAL: Final = ".writing/"
_MAX_LISTED = 10_000
_MAX_SHOWN = 8
_MEDIA: Final = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".wav", ".mp3", ".flac", ".mp4"),
)
SINGLE_MEDIA: Final = (
    "single images, sounds, or videos, which are not samples of a data set: write them with "
    "MDSWriter, or pack them into tar files or Parquet"
)


def is_media(name: str) -> bool:
    """Whether a name, or the end of a pattern, is that of a single image, sound, or video."""
    return name.lower().endswith(_MEDIA)


def load_index(
    url_or_path: str | os.PathLike[str], *, storage_options: StorageOptions | None = None
) -> ShardTable:
    """Return the table of the data set at `url_or_path`: its folder, or its index file.

    Blocks while the document is fetched. `storage_options` are what the store takes beyond the URL;
    see `open_store`.

    Raises:
        IndexMissingError: There is no index; says what was found instead.
        IndexInvalidError: It cannot be trusted; lists all that is wrong.
        StoreError: The store cannot be read.

    Example:
        >>> from streaming_core._store import open_store
        >>> _ = open_store("memory://load").put("index.json", [b'{"shards": [], "version": 2}'])
        >>> load_index("memory://load"), load_index("memory://load/index.json").num_samples
        (ShardTable(0 shards, 0 samples, 0 B), 0)
    """
    folder, name = _split(url_or_path)
    return read_index(open_store(folder, storage_options), name)


def read_index(store: Store, name: str = INDEX_NAME) -> ShardTable:
    """Return the table of the data set in `store`; raises as `load_index`.

    Example:
        >>> from streaming_core._store import open_store
        >>> store = open_store("memory://read")
        >>> _ = store.put("index.json", [b'{"shards": [], "version": 2}'])
        >>> read_index(store)
        ShardTable(0 shards, 0 samples, 0 B)
    """
    where = f"{store.url.rstrip('/')}/{name}"
    try:
        data = store.get(name, max_bytes=MAX_INDEX_BYTES)
    except ObjectNotFoundError as error:
        msg = f"no index at {where}; {_advice(store)}"
        raise IndexMissingError(msg) from error
    return parse_index(data, where)


def _split(url_or_path: str | os.PathLike[str]) -> tuple[str | os.PathLike[str], str]:
    """Return the folder and the name of the index in it; only a name in `.json` is a file."""
    text = os.fspath(url_or_path)
    folder, separator, name = text.rpartition("/")
    if not name.endswith(".json"):
        return url_or_path, INDEX_NAME
    return (folder or separator or "."), name


def _advice(store: Store) -> str:
    """Say what lies there instead, as far as the first objects tell."""
    try:
        keys = [info.key for info in islice(store.list(), _MAX_LISTED)]
    except StoreError as error:
        return f"and what is there cannot be listed ({error})"
    if any(key.startswith(_JOURNAL) for key in keys):
        return (
            "an unfinished conversion is here; resume it with MDSWriter(..., resume=True), "
            "with the arguments it was started with"
        )
    folders = [key.removesuffix(f"/{INDEX_NAME}") for key in keys if key.endswith(f"/{INDEX_NAME}")]
    if folders:
        shown = ", ".join(map(repr, folders[:_MAX_SHOWN]))
        more = ", …" if len(folders) > _MAX_SHOWN else ""
        return f"did you mean one of the data sets below it: {shown}{more}? Name it, or its split"
    if not keys and isinstance(store, LocalStore) and store.path.is_file():
        if is_media(store.url):
            return f"there are {SINGLE_MEDIA}"
        return "this is a file, whose name tells no format; say what it is, as in format='parquet'"
    if not keys:
        return "nothing at all is there; check the path, and that the data was copied"
    if any("shard." in key for key in keys):
        return (
            "there are shards, so the conversion may not have finished, or the index was not "
            "copied; 'streaming-core verify --fix' writes one from the shards"
        )
    shown = next((key for key in keys if not key.startswith((".", "_"))), keys[0])
    if is_media(shown):
        return f"there are {SINGLE_MEDIA}"
    return (
        f"there are other files, such as {shown!r}: if they are the data, say what they are, as in "
        "format='parquet'; if shards should be there, check the path"
    )
