"""Delta Lake tables: deltalake says which files a version has; nothing else of it is used."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np

from streaming_core._extras import require
from streaming_core._store import public_url
from streaming_core._virtual._tables._layout import FIELD_ID, FILE_NAME, plain_schema, rebuilt
from streaming_core._virtual._tables._places import rooted
from streaming_core._virtual._tables._plan import (
    PlannedFile,
    TablePlan,
    checked_positions,
    no_files,
)
from streaming_core._virtual._tables._values import to_text
from streaming_core.errors import SchemaError, SourceChangedError, SourceFormatError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

__all__ = ["open_delta", "plan_delta"]

_FEATURES: Final = frozenset(
    {
        "catalogManaged",
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""What a reader must know of for some tables, and this one does."""
_READER_VERSION: Final = 3
_MAPPING_VERSION: Final = 2
_COLUMN_ID: Final = b"delta.columnMapping.id"
_PHYSICAL: Final = b"delta.columnMapping.physicalName"
_MODE: Final = "delta.columnMapping.mode"
_ESCAPED: Final = re.compile(rb"\\u00([0-9a-fA-F]{2})")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_GONE: Final = re.compile(r"not ?found|No such file", re.IGNORECASE)
_MS: Final = 1000
_UNKNOWN: Final = -1


def open_delta(
    table: str,
    *,
    version: int | None = None,
    as_of: datetime | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the `deltalake` table at a place, at one version or time, else the newest.

    `options` are deltalake's own for the storage, such as `AWS_REGION`.

    Raises:
        SchemaError: There is no such table, version or time, or it needs what is not supported.
        StoreError: The storage failed.
    """
    where = public_url(table)
    if version is not None and as_of is not None:
        msg = f"{where}: give a version or a time, not both"
        raise SchemaError(msg)
    if as_of is not None and as_of.tzinfo is None:
        msg = f"{where}: as_of={as_of} has no time zone; give one, such as datetime.UTC"
        raise SchemaError(msg)
    library = _library("deltalake")
    chosen = dict(options) if options else None
    with _mapped_errors(where):
        opened = library.DeltaTable(table, version=version, storage_options=chosen)
        if as_of is not None:
            opened.load_as_version(as_of)
            _check_time(opened, as_of, where)
        return opened


def plan_delta(
    table: Any,  # noqa: ANN401 - of an optional dependency
    *,
    version: int | None = None,
    as_of: datetime | None = None,
    file_filter: str | None = None,
    options: Mapping[str, str] | None = None,
) -> TablePlan:
    """Return what one version of a Delta table is, the newest by default.

    `table`, `version`, `as_of` and `options` are as `open_delta` takes them, or `table` is what it
    returned. `file_filter`, an SQL predicate, leaves out files that have no matching rows; those
    that stay have all their rows.

    Raises:
        SchemaError: No such table or version; it needs a feature that is not supported, which the
            message names; the filter cannot be used.
        SourceChangedError: A file of deletion vectors is gone.
        StoreError: The storage failed.
    """
    opened = table
    if isinstance(table, str):
        opened = open_delta(table, version=version, as_of=as_of, options=options)
    where = public_url(unquote(opened.table_uri))
    _check_protocol(opened, where)
    arrow = require("pyarrow", extra="delta", purpose="a Delta table")
    actions = arrow.table(opened.get_add_actions())
    paths = [_location(path) for path in actions.column("path").to_pylist()]
    pruned = _pruned(opened, file_filter, where)
    rows = [_UNKNOWN if one is None else one for one in actions.column("num_records").to_pylist()]
    sizes = actions.column("size_bytes").to_pylist()
    constants = _constants(actions)
    root = _location(opened.table_uri)
    absolute = [path if _is_absolute(path) else f"{root.rstrip('/')}/{path}" for path in paths]
    place = rooted(absolute, root)
    deleted = _deleted(opened, where)
    strange = sorted(deleted.keys() - set(map(_bare, absolute)))
    if strange:
        msg = f"{where}: deletion vectors of files that the table does not have: {strange[0]}"
        raise SourceFormatError(msg)
    files = [
        PlannedFile(
            key=key,
            kind="parquet",
            size=sizes[at],
            rows=rows[at],
            constants=constants(at),
            deleted=checked_positions(
                [deleted[name]] if name in deleted else [], rows[at], f"{where}: {key}"
            ),
        )
        for at, (key, name) in enumerate(zip(place.keys, map(_bare, absolute), strict=True))
        if name not in pruned
    ]
    if pruned and not files:
        raise no_files(where, file_filter)
    return TablePlan(
        root=place.root,
        snapshot=str(opened.version()),
        schema=_schema(opened, arrow),
        files=tuple(sorted(files, key=lambda file: file.key)),
    )


# --- the table ------------------------------------------------------------------------------------


def _check_protocol(opened: Any, where: str) -> None:  # noqa: ANN401 - see above
    protocol = opened.protocol()
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _FEATURES)
    if protocol.min_reader_version > _READER_VERSION or unknown:
        msg = (
            f"{where}: reading this Delta table needs "
            f"{', '.join(unknown) or f'reader version {protocol.min_reader_version}'}, which is "
            f"not supported; known are {', '.join(sorted(_FEATURES))}. Drop the feature, or copy "
            "the table to one without it"
        )
        raise SchemaError(msg)


def _check_time(opened: Any, as_of: datetime, where: str) -> None:  # noqa: ANN401 - see above
    """Raise if the version is younger than the time: before the first one there was no table."""
    written = next((entry.get("timestamp") for entry in opened.history(1)), None)
    if written is not None and written > as_of.timestamp() * _MS:
        first = datetime.fromtimestamp(written / _MS, UTC)
        msg = f"{where}: no version at {as_of}; the first that is known is of {first}"
        raise SchemaError(msg)


def _schema(opened: Any, arrow: Any) -> Any:  # noqa: ANN401 - see above
    """Return the table's schema with what tells each column in files."""
    mode = _mapping_mode(opened)
    partitions = set(opened.metadata().partition_columns)
    schema = plain_schema(arrow.schema(opened.schema().to_arrow()))
    fields = [_told(field, mode, arrow) for field in schema]
    return arrow.schema(
        # A partition's value is in the table's log, whatever the file may have by that name.
        field.with_metadata({FILE_NAME: b""}) if field.name in partitions else field
        for field in fields
    )


def _mapping_mode(opened: Any) -> str:  # noqa: ANN401 - see above
    """Return `name` or `id`, or `none`, as for a mode that the table's protocol does not have."""
    protocol = opened.protocol()
    # From reader version 3 on, a table's list of features says; before, 2 is the one that has it.
    has_it = (
        protocol.min_reader_version == _MAPPING_VERSION
        if protocol.reader_features is None
        else "columnMapping" in protocol.reader_features
    )
    return str(opened.metadata().configuration.get(_MODE, "none")) if has_it else "none"


def _told(field: Any, mode: str, arrow: Any) -> Any:  # noqa: ANN401 - see above
    """Return a field, and those in it, with id and name in files as the mode of mapping wants."""
    known: dict[bytes, bytes] = field.metadata or {}
    metadata: dict[bytes, bytes] = {}
    if mode != "none" and _PHYSICAL in known:
        metadata[FILE_NAME] = known[_PHYSICAL]
    if mode == "id" and _COLUMN_ID in known:
        metadata[FIELD_ID] = known[_COLUMN_ID]
    kind = rebuilt(field.type, lambda _, child: _told(child, mode, arrow))
    return field.with_type(kind).with_metadata(metadata or None)


# --- its files ------------------------------------------------------------------------------------


def _constants(actions: Any) -> Callable[[int], tuple[tuple[str, str | None], ...]]:  # noqa: ANN401 - see above
    """Return what gives the partition values of each file."""
    if "partition" not in actions.column_names:
        return lambda _: ()
    partition = actions.column("partition").combine_chunks()
    names = [field.name for field in partition.type]
    columns = [partition.field(at) for at in range(len(names))]

    def of(at: int) -> tuple[tuple[str, str | None], ...]:
        texts = (to_text(_unescaped(column[at])) for column in columns)
        return tuple(zip(names, texts, strict=True))

    return of


def _unescaped(scalar: Any) -> Any:  # noqa: ANN401 - see above
    r"""Return a value; bytes stand in the log as `\u0001`, which deltalake hands on as it is."""
    arrow = require("pyarrow", extra="delta", purpose="a Delta table")
    if not scalar.is_valid or not arrow.types.is_binary(scalar.type):
        return scalar
    return arrow.scalar(
        _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), scalar.as_py()), scalar.type
    )


def _pruned(opened: Any, file_filter: str | None, where: str) -> set[str]:  # noqa: ANN401 - see above
    """Return the files that a filter leaves out.

    Not those that it keeps: of files outside the table's folder deltalake makes up odd names, and a
    file that is not recognised must stay.
    """
    if file_filter is None:
        return set()
    with _mapped_errors(where):
        kept = opened.file_uris(file_pruning_predicate=file_filter)
        every = opened.file_uris()
    return {_bare(_location(uri)) for uri in set(every) - set(kept)}


def _deleted(opened: Any, where: str) -> dict[str, NDArray[np.int64]]:  # noqa: ANN401 - see above
    """Return the deleted rows of the files that have any."""
    found: dict[str, NDArray[np.int64]] = {}
    arrow = require("pyarrow", extra="delta", purpose="a Delta table")
    with _mapped_errors(where):
        reader = arrow.RecordBatchReader.from_stream(opened.deletion_vectors())
        for batch in reader:
            paths, masks = batch.column("filepath"), batch.column("selection_vector")
            for path, mask in zip(paths, masks, strict=True):
                # Rows behind the end of a mask are kept.
                keep = mask.values.to_numpy(zero_copy_only=False)
                found[_bare(_location(path.as_py()))] = np.flatnonzero(~keep)
    return found


def _location(path: str) -> str:
    """Return a path of the log, or a URL, without its encoding; `%20` in it stands for a space."""
    return unquote(path)


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or _SCHEME.match(path) is not None


def _bare(location: str) -> str:
    """Return what is equal for all the ways to write one place of this machine."""
    return re.sub(r"^file:/+", "/", location)


# --- deltalake ------------------------------------------------------------------------------------


@contextmanager
def _mapped_errors(where: str) -> Generator[None]:
    """Turn what deltalake raises into errors of ours."""
    errors = _library("deltalake.exceptions")
    arrow = require("pyarrow", extra="delta", purpose="a Delta table")
    try:
        yield
    except errors.TableNotFoundError as error:
        msg = f"{where}: no Delta table is there, no '_delta_log' in it: {error!s:.300}"
        raise SchemaError(msg) from error
    except (errors.DeltaError, arrow.ArrowException, ValueError, TypeError) as error:
        if _GONE.search(str(error)):
            msg = (
                f"{where}: a file of this version of the Delta table is gone ({error!s:.300}); it "
                "was vacuumed. Choose a version that the table still has"
            )
            raise SourceChangedError(msg) from error
        msg = f"{where}: the Delta table cannot be read so: {error!s:.500}"
        raise SchemaError(msg) from error
    except OSError as error:
        msg = f"{where}: the storage of the Delta table failed: {error!s:.300}"
        raise StoreError(msg) from error


def _library(module: str) -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require(module, extra="delta", purpose="a Delta table")
