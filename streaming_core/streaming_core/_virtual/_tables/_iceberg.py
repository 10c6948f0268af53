"""Iceberg tables: pyiceberg says which files a snapshot has; nothing else of it is used."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._store import RequestPolicy, public_url
from streaming_core._virtual._kinds import kind_names
from streaming_core._virtual._tables._defaults import DEFAULT
from streaming_core._virtual._tables._iceberg_deletes import Deletes, DeletesOf, deleted_rows
from streaming_core._virtual._tables._layout import FIELD_ID, plain_schema, rebuilt
from streaming_core._virtual._tables._places import rooted
from streaming_core._virtual._tables._plan import PlannedFile, TablePlan, no_files
from streaming_core._virtual._tables._values import to_text
from streaming_core.errors import SchemaError, SourceChangedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._store import StorageOptions

__all__ = ["open_iceberg", "plan_iceberg", "storage_options_of"]

_METADATA_END: Final = ".metadata.json"
_NAMES: Final = "schema.name-mapping.default"
_MS: Final = 1000
_STORAGE: Final = {
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.endpoint": "endpoint_url",
    "s3.region": "region",
    "s3.profile-name": "profile",
    "client.access-key-id": "access_key_id",
    "client.secret-access-key": "secret_access_key",
    "client.session-token": "session_token",
    "client.region": "region",
    "gcs.oauth2.token": "token",
    "gcs.project-id": "project",
    "gcs.service.host": "endpoint_url",
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_token",
    "adls.connection-string": "connection_string",
    "adls.token": "token",
}
_SCHEMES: Final = {
    "s3": ("s3.", "client."),
    "s3a": ("s3.", "client."),
    "s3n": ("s3.", "client."),
    "gs": ("gcs.",),
    "abfs": ("adls.",),
    "abfss": ("adls.",),
    "wasb": ("adls.",),
    "wasbs": ("adls.",),
}


def open_iceberg(table: str | Sequence[str], catalog: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the `pyiceberg` table of that name, or of the metadata file or folder at a location.

    A name has its namespace before it, of any depth: `db.table`, `db.part.table`, or a sequence of
    the parts where one has a dot; the catalog's own name is no part of it. `catalog` has the
    catalog's properties, as `pyiceberg.catalog.load_catalog` takes them, or, for a location, those
    of its storage.

    Raises:
        SchemaError: There is no such table, or the catalog cannot be used as given.
        StoreError: The catalog or the storage failed.
    """
    catalogs = _library("pyiceberg.catalog")
    errors = _library("pyiceberg.exceptions")
    given = dict(catalog or {})
    told = table if isinstance(table, str) else ".".join(table)
    try:
        if isinstance(table, str) and ("/" in table or table.endswith(_METADATA_END)):
            return _library("pyiceberg.table").StaticTable.from_metadata(table, given)
        name = str(given.pop("name", "default"))
        return catalogs.load_catalog(name, **given).load_table(
            table if isinstance(table, str) else tuple(table)
        )
    except (errors.NoSuchTableError, errors.NoSuchNamespaceError) as error:
        msg = (
            f"no Iceberg table {told!r} in the catalog; a name is 'namespace.table', with every "
            "level of the namespace, and without the catalog's own name"
        )
        raise SchemaError(msg) from error
    except FileNotFoundError as error:
        msg = (
            f"no Iceberg table at {public_url(told)}: give its metadata file, or its folder if "
            "'metadata/version-hint.text' is there; for a table of a catalog give its name"
        )
        raise SchemaError(msg) from error
    except errors.ValidationError as error:
        msg = f"the metadata of the Iceberg table {public_url(told)} are invalid: {_problem(error)}"
        raise SchemaError(msg) from error
    except (OSError, errors.RESTError) as error:
        msg = f"the Iceberg table {public_url(told)} cannot be opened: {error!s:.300}"
        raise StoreError(msg) from error
    except (ValueError, TypeError) as error:
        msg = f"the Iceberg table {public_url(told)} cannot be opened: {error!s:.300}"
        raise SchemaError(msg) from error


def _problem(error: Exception) -> str:
    """Return the first problem that pyiceberg found in metadata, and what to do about it."""
    problems: Any = getattr(error.__cause__, "errors", None)  # pydantic's
    if problems is None:
        return f"{error!s:.300}"
    first = problems(include_url=False, include_input=False)[0]
    text = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}".removeprefix(": ")
    if "manifest-list" not in first["loc"]:
        return text
    return (
        f"{text}. Snapshots of format version 1 that list their manifests in the metadata are not "
        "read: upgrade the table to format version 2 and expire such snapshots"
    )


def storage_options_of(table: Any) -> dict[str, str]:  # noqa: ANN401 - of an optional dependency
    """Return what the catalog gave to read a table's files with, as our stores take it.

    Credentials that a catalog vends are among it, and run out: pass a function that opens the
    table anew as the storage options of what reads for long.
    """
    scheme = str(table.location()).partition("://")[0].lower()
    prefixes = _SCHEMES.get(scheme, ())
    known = {
        ours: str(table.io.properties[theirs])
        for theirs, ours in reversed(_STORAGE.items())
        if theirs.startswith(prefixes or ("\0",)) and table.io.properties.get(theirs) is not None
    }
    anonymous = any(
        str(table.io.properties.get(name, "")).lower() == "true"
        for name in ("s3.anonymous", "adls.anon")
        if name.startswith(prefixes or ("\0",))
    )
    return {**known, "anonymous": "true"} if anonymous else known


def plan_iceberg(
    table: Any,  # noqa: ANN401 - of an optional dependency
    *,
    catalog: Mapping[str, Any] | None = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    as_of: datetime | None = None,
    file_filter: Any = None,  # noqa: ANN401 - an expression of an optional dependency
    storage_options: StorageOptions | None = None,
    policy: RequestPolicy | None = None,
) -> TablePlan:
    """Return what one snapshot of an Iceberg table is, the current one by default.

    `table` and `catalog` are as `open_iceberg` takes them, or `table` is what it returned. One of
    `snapshot_id`, `ref` (a tag or branch) and `as_of` (a time with its zone) may choose another
    snapshot; it then has the columns of its own time, as pyiceberg reads it. `file_filter`, a text
    or a pyiceberg expression, leaves out files that have no matching rows; those that stay have
    all their rows. Position deletes and deletion vectors are read here, through `storage_options`
    (by default what the catalog gave). `policy` says how often what fails is asked for again.

    Raises:
        SchemaError: No such table or snapshot; equality deletes; a format that is not read; a
            filter that leaves no file.
        SourceChangedError: Metadata of the snapshot are gone: it expired.
        SourceFormatError: Files of deletes are broken.
        StoreError: The storage or the catalog failed.
    """
    policy = policy or RequestPolicy()
    is_open = hasattr(table, "metadata")
    opened = table if is_open else policy.call(lambda: open_iceberg(table, catalog))
    location = opened.location()
    scan = _scan(opened, snapshot_id, ref, as_of, file_filter)
    snapshot = scan.snapshot()  # none before anything was written
    tasks = [] if snapshot is None else policy.call(lambda: _tasks(scan, snapshot, location))
    if file_filter is not None and snapshot is not None and not tasks:
        raise no_files(public_url(location), file_filter)
    place = rooted([task.file.file_path for task in tasks], location)
    options = storage_options_of(opened) or None if storage_options is None else storage_options
    deleted = deleted_rows([_deletes_of(task) for task in tasks], location, options, policy)
    projection = scan.projection()
    constants = _Constants(opened.metadata, projection)
    files = [
        PlannedFile(
            key=key,
            kind=_kind_of(task.file),
            size=int(task.file.file_size_in_bytes),
            rows=int(task.file.record_count),
            constants=constants.of(task.file),
            deleted=gone,
        )
        for task, key, gone in zip(tasks, place.keys, deleted, strict=True)
    ]
    files.sort(key=lambda file: file.key)
    _check_once(files, location)
    return TablePlan(
        root=place.root,
        snapshot="" if snapshot is None else str(snapshot.snapshot_id),
        schema=_arrow_schema(projection, location),
        files=tuple(files),
        names=str(opened.metadata.properties.get(_NAMES, "")),
    )


def _scan(
    table: Any,  # noqa: ANN401 - of an optional dependency
    snapshot_id: int | None,
    ref: str | None,
    as_of: datetime | None,
    file_filter: Any,  # noqa: ANN401 - see above
) -> Any:  # noqa: ANN401 - see above
    """Return the scan of the snapshot that was chosen."""
    where = public_url(table.location())
    if sum(one is not None for one in (snapshot_id, ref, as_of)) > 1:
        msg = f"{where}: give one of snapshot_id, ref and as_of, not several"
        raise SchemaError(msg)
    if as_of is not None:
        if as_of.tzinfo is None:
            msg = f"{where}: as_of={as_of} has no time zone; give one, such as datetime.UTC"
            raise SchemaError(msg)
        found = table.snapshot_as_of_timestamp(int(as_of.timestamp() * _MS))
        if found is None:
            first = min((entry.timestamp_ms for entry in table.history()), default=None)
            since = None if first is None else datetime.fromtimestamp(first / _MS, as_of.tzinfo)
            msg = f"{where}: no snapshot at {as_of}; the first that is known is of {since}"
            raise SchemaError(msg)
        snapshot_id = found.snapshot_id
    if ref is not None:
        found = table.snapshot_by_name(ref)
        if found is None:
            known = ", ".join(map(repr, sorted(table.metadata.refs))) or "none"
            msg = f"{where}: no branch or tag {ref!r}; there are {known}"
            raise SchemaError(msg)
        snapshot_id = found.snapshot_id
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        known = ", ".join(str(one.snapshot_id) for one in table.snapshots()[-5:]) or "none"
        msg = f"{where}: no snapshot {snapshot_id}; the last ones are {known}"
        raise SchemaError(msg)
    chosen = {} if file_filter is None else {"row_filter": file_filter}
    unreadable = _library("pyparsing").ParseBaseException  # what pyiceberg reads texts with
    try:
        return table.scan(snapshot_id=snapshot_id, **chosen)
    except (unreadable, ValueError, TypeError) as error:
        msg = f"{where}: file_filter={file_filter!r} cannot be used: {error!s:.300}"
        raise SchemaError(msg) from error


def _tasks(scan: Any, snapshot: Any, location: str) -> list[Any]:  # noqa: ANN401 - see above
    """Return pyiceberg's tasks: a data file each, with the files that may delete of it."""
    where = public_url(location)
    try:
        return list(scan.plan_files())
    except FileNotFoundError as error:
        msg = (
            f"{where}: metadata of the snapshot {snapshot.snapshot_id} are gone; it expired. "
            "Choose one that the table still has"
        )
        raise SourceChangedError(msg) from error
    except OSError as error:
        msg = f"{where}: the snapshot {snapshot.snapshot_id} cannot be planned: {error!s:.300}"
        raise StoreError(msg) from error
    except (ValueError, TypeError, NotImplementedError) as error:
        equality = _equality_deletes(scan, snapshot)
        if equality:
            msg = (
                f"{where}: the snapshot {snapshot.snapshot_id} has {len(equality)} file(s) of "
                f"equality deletes, such as {public_url(equality[0])}; these are not applied. "
                "Compact the table first, for example with Spark's rewrite_data_files with "
                "delete-file-threshold 1, or read a snapshot from before them"
            )
        else:
            msg = f"{where}: the snapshot {snapshot.snapshot_id} cannot be planned: {error!s:.300}"
        raise SchemaError(msg) from error


def _equality_deletes(scan: Any, snapshot: Any) -> list[str]:  # noqa: ANN401 - see above
    manifest = _library("pyiceberg.manifest")
    return sorted(
        entry.data_file.file_path
        for one in snapshot.manifests(scan.io)
        if one.content == manifest.ManifestContent.DELETES
        for entry in one.fetch_manifest_entry(scan.io)
        if entry.data_file.content == manifest.DataFileContent.EQUALITY_DELETES
    )


def _kind_of(file: Any) -> str:  # noqa: ANN401 - see above
    kind = str(file.file_format.value).lower()
    where = public_url(file.file_path)
    if kind not in kind_names():
        msg = f"{where}: a data file of the format {kind!r}; read are {', '.join(kind_names())}"
        raise SchemaError(msg)
    if file.key_metadata is not None:
        msg = f"{where}: an encrypted data file, which cannot be read"
        raise SchemaError(msg)
    return kind


def _deletes_of(task: Any) -> DeletesOf:  # noqa: ANN401 - see above
    deletes = frozenset(
        Deletes(one.file_path, str(one.file_format.value).lower(), int(one.file_size_in_bytes))
        for one in task.delete_files
    )
    return DeletesOf(task.file.file_path, int(task.file.record_count), deletes)


def _check_once(files: Sequence[PlannedFile], location: str) -> None:
    for one, other in itertools.pairwise(files):
        if one.key == other.key:
            msg = (
                f"{public_url(location)}: the table has the file {one.key!r} twice, so its rows "
                "twice; rewrite the table"
            )
            raise SchemaError(msg)


def _arrow_schema(projection: Any, location: str) -> Any:  # noqa: ANN401 - see above
    convert = _library("pyiceberg.io.pyarrow").schema_to_pyarrow
    try:
        schema = plain_schema(convert(projection, include_field_ids=True))
        return _with_defaults(schema, projection)
    except (ValueError, TypeError, NotImplementedError, AttributeError) as error:
        msg = f"{public_url(location)}: a column of the table has no form here: {error!s:.300}"
        raise SchemaError(msg) from error


def _with_defaults(schema: Any, projection: Any) -> Any:  # noqa: ANN401 - see above
    """Return a table's schema with the first defaults of the fields in structs."""
    arrow = require("pyarrow", extra="parquet", purpose="Iceberg tables")
    convert = _library("pyiceberg.io.pyarrow").schema_to_pyarrow
    fields: Mapping[int, Any] = _library("pyiceberg.schema").index_by_id(projection)
    top = {field.field_id for field in projection.fields}  # these are constants of files
    defaults = {
        str(one).encode(): _text(field.initial_default, convert(field.field_type)) or ""
        for one, field in fields.items()
        if one not in top and field.initial_default is not None
    }

    def told(_: str, field: Any) -> Any:  # noqa: ANN401 - see above
        metadata: dict[bytes, bytes] = dict(field.metadata or {})
        default = defaults.get(metadata.get(FIELD_ID, b""))
        if default is not None:
            metadata[DEFAULT] = default.encode()
        return field.with_type(rebuilt(field.type, told)).with_metadata(metadata)

    if not defaults:
        return schema
    return arrow.schema([field.with_type(rebuilt(field.type, told)) for field in schema])


def _text(value: Any, kind: Any) -> str | None:  # noqa: ANN401 - see above
    arrow = require("pyarrow", extra="parquet", purpose="Iceberg tables")
    value = getattr(value, "bytes", value)  # of a UUID
    return to_text(arrow.scalar(value, getattr(kind, "storage_type", kind)))


class _Constants:
    """What rows have in columns that their file lacks: partition values, else first defaults."""

    def __init__(self, metadata: Any, projection: Any) -> None:  # noqa: ANN401 - see above
        convert = _library("pyiceberg.io.pyarrow").schema_to_pyarrow
        identity = _library("pyiceberg.transforms").IdentityTransform
        self._fields = {field.field_id: field for field in projection.fields}
        self._types = {
            one: convert(field.field_type)
            for one, field in self._fields.items()
            if field.field_type.is_primitive
        }
        self._places = {
            spec_id: [
                (at, field.source_id)
                for at, field in enumerate(spec.fields)
                if isinstance(field.transform, identity)
            ]
            for spec_id, spec in metadata.specs().items()
        }

    def of(self, file: Any) -> tuple[tuple[str, str | None], ...]:  # noqa: ANN401 - see above
        """Return the values for one file."""
        found: dict[str, str | None] = {}
        for one, kind in self._types.items():
            default = self._fields[one].initial_default
            if default is not None:
                found[self._fields[one].name] = _text(default, kind)
        for at, source in self._places.get(file.spec_id, []):
            if source in self._types and file.partition[at] is not None:
                kind = self._types[source]
                found[self._fields[source].name] = _text(file.partition[at], kind)
        return tuple(sorted(found.items()))


def _library(module: str) -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require(module, extra="iceberg", purpose="an Iceberg table")
