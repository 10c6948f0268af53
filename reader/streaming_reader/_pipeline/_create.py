"""One call from a place of data to a loader of finished batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from streaming_core._arguments import checked, refuse_unknown
from streaming_core._world import World
from streaming_core.errors import SchemaError
from streaming_reader._pipeline._names import (
    DATASET,
    ELSEWHERE,
    LOADER,
    SOURCE,
    TRANSFORMS,
    PipelineOptions,
)
from streaming_reader._pipeline._transforms import Transforms
from streaming_reader.dataset import StreamingDataset
from streaming_reader.stream import Stream

if TYPE_CHECKING:
    from typing import TypeAlias, Unpack

    from streaming_reader.loader import StreamingDataLoader

    Place: TypeAlias = str | os.PathLike[str]

__all__ = ["create_dataloader"]

_SCHEME = "://"


def create_dataloader(
    path: Place | Sequence[Place] | None = None,
    *,
    batch_size: int,
    **options: Unpack[PipelineOptions],
) -> tuple[StreamingDataLoader, StreamingDataset]:
    """Return a loader of finished batches, and the data set that it reads.

    Each rank and worker gives its own samples, all ranks as many batches, and each epoch another
    order if shuffled; `loader.state_dict()` says where training stands. Blocks until the files
    were looked at, which happens once.

    Args:
        path: Folder, file, pattern (`s3://bucket/table/**/*.parquet`), or several of them. Local
            ones are read in place. Instead of it, give `streams`, or `remote` and `local`.
        batch_size: Samples in each batch of one rank.
        **options: What `Stream`, `StreamingDataset` and `StreamingDataLoader` take, and:
            streams: Sources to be mixed: `Stream` objects, or dicts of what these take and `path`,
            such as `{"path": "/data/a/*.parquet", "proportion": 0.3}`. What a dict does not say is
            taken from the options of the same name.
            rank, num_ranks, ranks_per_node: Who this process is, where its launcher does not say;
            or `world`.
            transform, filter, batch_transform: See `Transforms`.

    Raises:
        SchemaError: An option is unknown, or of no use; says which, and what may have been meant.
        MissingExtraError: torch is not installed.

    Example:
        >>> import tempfile
        >>> from streaming_core import MDSWriter, create_dataloader
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...         for x in range(6):
        ...             writer.write({"x": x})
        ...     loader, dataset = create_dataloader(folder, batch_size=4, batch_format="numpy")
        ...     [batch["x"].tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5]]
    """
    # Named here, so that importing this does not load torch.
    from streaming_reader.loader import StreamingDataLoader  # noqa: PLC0415 - optional

    given: dict[str, Any] = dict(options)
    known = PipelineOptions.__annotations__.keys() | {"path", "batch_size"}
    refuse_unknown(given, known, "create_dataloader", ELSEWHERE)
    batch_size = checked({"batch_size": batch_size}, required=("batch_size",))["batch_size"]
    dataset = StreamingDataset(
        streams=_streams(path, given),
        batch_size=batch_size,
        world=_world(given),
        transforms=Transforms.of(**_chosen(given, TRANSFORMS)),
        **_chosen(given, DATASET),
    )
    return StreamingDataLoader(dataset, batch_size, **_chosen(given, LOADER)), dataset


def _chosen(given: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in names}


# --- sources --------------------------------------------------------------------------------------


def _streams(path: object, given: dict[str, Any]) -> list[Stream]:
    """Return the streams that were named in one of the ways to do so."""
    common = _chosen(given, SOURCE)
    several = given.get("streams")
    ways = {
        "path": path is not None,
        "streams": several is not None,
        "remote or local": given.get("remote") is not None
        or (given.get("local") is not None and path is None),
    }
    named = [way for way, is_given in ways.items() if is_given]
    if len(named) != 1:
        msg = (
            "say where the samples come from: give exactly one of path, streams, and remote or "
            f"local, came {' and '.join(named) or 'none'}"
        )
        raise SchemaError(msg)
    if several is None:
        if isinstance(path, list | tuple):
            places = cast("Sequence[object]", path)
            if not places:
                msg = "path is an empty list; give at least one folder, file or pattern"
                raise SchemaError(msg)
            if len(places) > 1 and common.get("local") is not None:
                msg = "local is the folder of one source; with several, give streams=[{...}]"
                raise SchemaError(msg)
            return [_stream(place, common) for place in places]
        return [_stream(path, common)]
    if not isinstance(several, Sequence) or isinstance(several, str) or not several:
        msg = f"streams must be a list of streams or dicts, at least one, came {several!r:.80}"
        raise SchemaError(msg)
    each = cast("Sequence[object]", several)
    return [_mixed(source, at, common) for at, source in enumerate(each)]


def _mixed(source: object, at: int, common: dict[str, Any]) -> Stream:
    if isinstance(source, Stream):
        if common:
            msg = (
                f"{', '.join(sorted(common))}: streams[{at}] is a Stream, which says that itself; "
                "give it there, or give dicts"
            )
            raise SchemaError(msg)
        return source
    if not isinstance(source, Mapping):
        msg = f"streams[{at}] must be a Stream or a dict, came {source!r:.80}"
        raise SchemaError(msg)
    own = {**cast("Mapping[str, Any]", source)}
    refuse_unknown(own, SOURCE | {"path"}, f"streams[{at}]", ELSEWHERE)
    return _stream(own.pop("path", None), {**common, **own})


def _stream(path: object, options: dict[str, Any]) -> Stream:
    """Return the stream of one place; a local one is read where it is."""
    if path is None:
        return Stream(**options)
    if not isinstance(path, str | os.PathLike):
        msg = f"path must be a folder, file, pattern or URL, came {path!r:.80}"
        raise SchemaError(msg)
    if options.get("remote") is not None:
        msg = f"path={path!r} and remote={options['remote']!r} name the same; give one of them"
        raise SchemaError(msg)
    place = os.fspath(cast("Place", path))
    options = {name: value for name, value in options.items() if value is not None}
    is_local = _SCHEME not in place and options.get("local") is None
    options["local" if is_local else "remote"] = place
    return Stream(**options)


# --- who ------------------------------------------------------------------------------------------


def _world(given: dict[str, Any]) -> World | None:
    """Return who this process is, if somebody said so."""
    names = ("rank", "num_ranks", "ranks_per_node")
    numbers = {name: given[name] for name in names if given.get(name) is not None}
    world: World | None = given.get("world")
    if not numbers:
        return world
    if world is not None or not {"rank", "num_ranks"} <= numbers.keys():
        msg = (
            "give rank and num_ranks together (ranks_per_node too, where nodes have several), or "
            f"world, or none of them; came {', '.join(numbers)}{' and world' if world else ''}"
        )
        raise SchemaError(msg)
    return World(**numbers)
