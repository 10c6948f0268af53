"""One source of samples: where its shards lie, where they are kept, and how much of it is used."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, overload

from streaming_core._arguments import checked, suggests
from streaming_core._attributes import forget_assigned, open_to_subclasses
from streaming_core._shown import Shown
from streaming_core._store import RequestPolicy
from streaming_core.errors import SchemaError
from streaming_reader._cache_home import is_url, user_cache
from streaming_reader._options import KeptOptions, KeptUrl
from streaming_reader._reading import HUB, Reading, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_core._store import RateLimiter, StorageOptions

__all__ = [
    "ResolvedStream",
    "Stream",
    "StreamDefaults",
    "streams_registry",
]

_NEVER_CALLED: Final = (
    "prepare_shard",
    "get_shards",
    "set_up_local",
    "get_index_size",
    "_prepare_shard_part",
    "_download_file",
)
"""What subclasses of other loaders' streams override."""
_ENTRY_POINTS: Final = "streaming_streams_registry"


@dataclass(frozen=True, slots=True)
class StreamDefaults:
    """What a stream takes from its data set where it says nothing itself."""

    remote: str | None = None
    local: str | None = None
    split: str | None = None
    download_retry: int = 2
    download_timeout: float = 60
    validate_hash: str | None = None
    keep_zip: bool = False
    storage_options: KeptOptions | None = None

    def __post_init__(self) -> None:
        for name, value in checked({f.name: getattr(self, f.name) for f in fields(self)}).items():
            if value is not None and name in {"remote", "local"}:
                value = KeptUrl.of(value)  # noqa: PLW2901 - the same one
            object.__setattr__(self, name, value)

    def policy(self, limiter: RateLimiter | None = None) -> RequestPolicy:
        """Return how often, and for how long, what opening a data set needs is asked for."""
        tries, timeout = self.download_retry + 1, self.download_timeout
        return RequestPolicy(tries, timeout=timeout, busy=timeout * tries, limiter=limiter)


class ResolvedStream:
    """Where a stream's data lies and is kept, and how it is read: its own settings and defaults."""

    def __init__(
        self, given: Mapping[str, Any], read_as: Mapping[str, Any], defaults: StreamDefaults
    ) -> None:
        """Take `given` settings first; `read_as` says how to read data that nobody converted."""
        known = {key: value for key, value in given.items() if value is not None}
        self.given = given
        self.settings = replace(defaults, **known)
        """All settings, with the defaults applied."""
        self._read_as = read_as

    def with_defaults(self, defaults: StreamDefaults) -> ResolvedStream:
        """Return the stream with other defaults."""
        return ResolvedStream(self.given, self._read_as, defaults)

    @property
    def reading(self) -> Reading | None:
        """How to read data that nobody converted; None for shards with an index."""
        if self.split and self._read_as["format"] == HUB:
            msg = (
                f"split={self.split!r} is a sub-folder; a split of a data set of the Hub is said "
                f"with format_options={{'split': {self.split!r}}}"
            )
            raise SchemaError(msg)
        return Reading.of(self.source, **self._read_as)

    @property
    def source(self) -> str | None:
        """Where the data lies, the split included."""
        place = KeptUrl.whole(self.settings.remote or self.settings.local or "")
        if not place or not self.split:
            return place or None
        return KeptUrl.of(f"{place.rstrip('/')}/{self.split}")

    @property
    def local(self) -> str:
        """Where the shards are kept, without the split."""
        if self.settings.local:
            return self.settings.local
        return str(user_cache(KeptUrl.whole(self.settings.remote or "")))

    @property
    def split(self) -> str:
        """The sub-folder of both, or nothing."""
        return self.settings.split or ""

    @property
    def folder(self) -> Path:
        """The folder that holds the shards' files on this machine."""
        if self.settings.remote is None and self.reading is not None:
            return user_cache(self.source or "")  # what is made of files is not put beside them
        return Path(self.local, self.split) if self.split else Path(self.local)

    @property
    def url(self) -> str | None:
        """The folder or URL that shards are fetched from; None if they are read in place."""
        remote = self.settings.remote
        if self.reading is not None:
            return self.source
        if remote is None:
            return None
        remote = KeptUrl.whole(remote)
        url = KeptUrl.of(f"{remote.rstrip('/')}/{self.split}" if self.split else remote)
        if "://" not in url and os.path.realpath(url) == os.path.realpath(self.folder):
            return None
        return url

    @property
    def storage_options(self) -> StorageOptions | None:
        """What to open the remote with; those of the data set are not for folders.

        Raises `AccessDeniedError` if they stayed behind in another process.
        """
        options = self.settings.storage_options
        is_own = self.given["storage_options"] is not None
        return options.get() if options and (is_own or is_url(self.settings.remote or "")) else None


@open_to_subclasses
class Stream(Shown):
    """A data set, or part of one, to be mixed with others; what is not given the data set gives.

    Args:
        remote: Where the shards lie: a folder or URL. None reads `local` in place.
        local: Where they are kept. Without it, a folder of their own below the user's cache folder
            (`STREAMING_CACHE_DIR`, else `streaming-core` in `XDG_CACHE_HOME` or `~/.cache`), which
            other runs with the same remote use too.
        split: A sub-folder of both, such as `train`.
        proportion: The share of samples that come from here, against those of other streams.
        repeat: How often each epoch gives all samples; fractions are drawn.
        choose: How many samples each epoch gives. At most one of these three.
        download_retry: How often a failed download is tried again.
        download_timeout: Seconds after which a request that brings nothing has failed; how long a
            shard takes in all does not matter.
        validate_hash: A hash of the index that every fetched file must match; without it, those
            that cost next to nothing are checked.
        keep_zip: Keep the compressed file beside the decompressed one.
        storage_options: What the remote's store takes beyond the URL, such as credentials: names
            and values, or a function that returns them, which is called again when they have run
            out. They are in no checkpoint, and in no pickle but that of a starting worker.
        format: What the files are if they are no shards with an index, such as `parquet`. A remote
            that is a pattern (`s3://bucket/table/*.parquet`), a file or a list of files tells it
            by its name. Tables are `iceberg` and `delta`; `hf` takes the files of a data set on the
            Hugging Face Hub that its card names.
        columns: Which columns of such files are read; all by default.
        filters: Which rows of such files are read: a `pyarrow.compute` expression, or tuples such
            as `[("x", ">", 3), ("y", "in", ["a", "b"])]`, of which all must hold; in a list of such
            lists, all of one. Where that is not known, as of a missing value, a row is left out;
            only `not in` holds for such a value, unless None is in its list.
        nulls: What becomes of values that such files lack: they are None (`none`), an error
            (`error`), marked in a column of their own (`mask`), or filled with a value each.
        format_options: What the format takes, such as `delimiter` of `csv`.
        index: The file, or its URL, that holds the index of such files; `streaming-core index`
            writes it. By default the one beside them is taken, or the files are looked at.

    Example:
        >>> stream = Stream(remote="/data/c4", local="/cache/c4", split="train", proportion=0.3)
        >>> stream.remote, stream.split, stream.download_retry
        ('/data/c4', 'train', 2)
    """

    @suggests()
    def __init__(  # noqa: PLR0913 - the reference's arguments
        self,
        *,
        remote: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        local: str | os.PathLike[str] | None = None,
        split: str | None = None,
        proportion: float | None = None,
        repeat: float | None = None,
        choose: int | None = None,
        download_retry: int | None = None,
        download_timeout: float | None = None,
        validate_hash: str | None = None,
        keep_zip: bool | None = None,
        storage_options: StorageOptions | None = None,
        format: str | None = None,
        columns: Sequence[str] | None = None,
        filters: object = None,
        nulls: object = "none",
        format_options: Mapping[str, Any] | None = None,
        index: str | os.PathLike[str] | None = None,
    ) -> None:
        _refuse_overrides(type(self))
        try:
            weight = checked({"proportion": proportion, "repeat": repeat, "choose": choose})
        except SchemaError as error:
            msg = f"the stream of {KeptUrl.of(str(remote or local))!r}: {error}"
            raise SchemaError(msg) from None
        if sum(number is not None for number in weight.values()) > 1:
            msg = (
                "a stream takes at most one of proportion, repeat and choose, came "
                f"proportion={proportion}, repeat={repeat}, choose={choose}"
            )
            raise SchemaError(msg)
        self.proportion: float | None = weight["proportion"]
        self.repeat: float | None = weight["repeat"]
        self.choose: int | None = weight["choose"]
        given: dict[str, Any] = {
            "remote": _place(remote, "remote"),
            "local": _place(local, "local"),
            "split": split,
            "download_retry": download_retry,
            "download_timeout": download_timeout,
            "validate_hash": validate_hash,
            "keep_zip": keep_zip,
            "storage_options": KeptOptions.of(storage_options),
        }
        settings = checked({"format": format, "format_options": format_options})
        read_as: dict[str, Any] = {
            "format": settings["format"],
            "columns": columns,
            "filters": filters,
            "nulls": nulls,
            "options": guarded(settings["format_options"]),
            "index": _place(index, "index"),
        }
        forget_assigned(self)
        self._streaming_engine = ResolvedStream(given, read_as, StreamDefaults())

    def apply_default(self, defaults: StreamDefaults) -> Self:
        """Take from `defaults` what this stream does not say itself; return the stream."""
        self._streaming_engine = self._streaming_engine.with_defaults(defaults)
        settings = self._streaming_engine.settings
        if settings.remote is None and settings.local is None:
            msg = "give remote (where the shards lie), local (where they are kept), or both"
            raise SchemaError(msg)
        return self

    @property
    def remote(self) -> str | None:
        """Where the shards lie, without the split; None if they are read in place."""
        return self._streaming_engine.settings.remote

    @property
    def local(self) -> str:
        """Where the shards are kept, without the split."""
        return self._streaming_engine.local

    @property
    def split(self) -> str:
        """The sub-folder of both, or nothing."""
        return self._streaming_engine.split

    @property
    def download_retry(self) -> int:
        """How often a failed download is tried again."""
        return self._streaming_engine.settings.download_retry

    @property
    def download_timeout(self) -> float:
        """Seconds after which a request that brings nothing has failed."""
        return self._streaming_engine.settings.download_timeout

    @property
    def validate_hash(self) -> str | None:
        """A hash of the index that every fetched file must match."""
        return self._streaming_engine.settings.validate_hash

    @property
    def keep_zip(self) -> bool:
        """Whether compressed files are kept beside the decompressed ones."""
        return self._streaming_engine.settings.keep_zip

    def _streaming_facts(self) -> dict[str, Any]:
        settings = self._streaming_engine.settings
        names = [f.name for f in fields(settings) if f.name != "storage_options"]
        weights = ("proportion", "repeat", "choose")
        return {name: getattr(settings, name) for name in names} | {
            name: getattr(self, name) for name in weights
        }


def _place(value: object, name: str) -> str | None:
    """Return a folder or URL as text, a list of files as the pattern that means them."""
    if isinstance(value, list | tuple) and name == "remote":
        from streaming_core._virtual._patterns import names_pattern  # noqa: PLC0415 - rarely needed

        return names_pattern([_place(each, name) or "" for each in cast("list[object]", value)])
    text = checked({name: value})[name]
    return None if text is None else KeptUrl.of(text)


def _refuse_overrides(cls: type[Stream]) -> None:
    """Raise `SchemaError` for methods of a subclass that nothing here would call."""
    found = [name for name in _NEVER_CALLED if hasattr(cls, name)]
    if found:
        msg = (
            f"{cls.__name__}.{found[0]} would never be called: shards are fetched side by side by "
            "the stores. For a place that no store reads yet, register one with "
            "streaming_core.register_store; to change samples, override __getitem__ of the "
            "dataset or give it transforms"
        )
        raise SchemaError(msg)


_Kind = TypeVar("_Kind", bound="type[Stream]")


class _Registry(dict[str, type[Stream]]):
    """Stream classes by name; packages add theirs by an entry point."""

    @overload
    def register(self, name: str) -> Callable[[_Kind], _Kind]: ...
    @overload
    def register(self, name: str, func: _Kind) -> _Kind: ...
    def register(self, name: str, func: type[Stream] | None = None) -> object:
        """Add a class under a name; without the class, return what decorates it.

        Example:
            >>> @streams_registry.register("mine")
            ... class Mine(Stream):
            ...     pass
            >>> streams_registry.pop("mine").__name__
            'Mine'
        """
        if func is None:
            return partial(self.register, name)
        self[name] = func
        return func

    def find(self, name: str) -> type[Stream]:
        """Return the class `name`; `SchemaError` lists the names there are."""
        if name not in self:
            from importlib.metadata import entry_points  # noqa: PLC0415 - takes long, seldom used

            for point in entry_points(group=_ENTRY_POINTS):
                if point.name == name:
                    self[name] = point.load()
        if name not in self:
            msg = f"no kind of stream {name!r}; there are {', '.join(sorted(self))}"
            raise SchemaError(msg)
        return self[name]


streams_registry: Final = _Registry(stream=Stream)
"""Kinds of streams by name, for `StreamingDataset(stream_name=...)`."""
