"""From what a user says of a table to its plan, and to the options of its storage."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from streaming_core._store import LocalStore, RequestPolicy, open_store
from streaming_core._virtual._tables._delta import plan_delta
from streaming_core._virtual._tables._iceberg import (
    open_iceberg,
    plan_iceberg,
    storage_options_of,
)
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store import StorageOptions, Store
    from streaming_core._virtual._tables._plan import TablePlan

__all__ = ["TABLE_FORMATS", "TABLE_OPTIONS", "find_table", "open_root"]

TABLE_OPTIONS: Final = {
    "iceberg": ("catalog", "snapshot_id", "ref", "as_of", "file_filter"),
    "delta": ("storage", "version", "as_of", "file_filter"),
}
"""What each format takes; the first may hold secrets."""
TABLE_FORMATS: Final = tuple(TABLE_OPTIONS)
"""Formats of tables."""


def find_table(
    format: str, table: str, options: Mapping[str, Any], policy: RequestPolicy
) -> TablePlan:
    """Return the plan of one version of a table, the newest unless `options` say which.

    Of Iceberg `table` is a name in the catalog that the option `catalog` describes, or the place of
    a metadata file; of Delta it is the table's folder. A time may be text, such as
    `2024-05-01T00:00:00+00:00`.

    Raises:
        SchemaError: There is no such table or version, or an option that the format does not take.
        StoreError: The catalog or the storage failed.
    """
    unknown = sorted(options.keys() - set(TABLE_OPTIONS[format]))
    if unknown:
        takes = ", ".join(TABLE_OPTIONS[format])
        msg = f"format {format!r} does not take {', '.join(unknown)}; its options: {takes}"
        raise SchemaError(msg)
    given = dict(options)
    if isinstance(given.get("as_of"), str):
        given["as_of"] = _moment(given["as_of"])
    if format == "delta":
        storage = given.pop("storage", None)
        return policy.call(lambda: plan_delta(table, options=storage, **given))
    return plan_iceberg(table, **given, policy=policy)


def open_root(
    plan: TablePlan,
    format: str,
    table: str,
    options: Mapping[str, Any],
    storage_options: StorageOptions | None,
) -> Store:
    """Return the store of a table's files, with what a catalog gives for it unless told.

    That is asked for again when it has run out.
    """
    if isinstance(open_store(plan.root), LocalStore):
        return open_store(plan.root)
    if storage_options is None and format == "iceberg":
        storage_options = _Vended(table, cast("Mapping[str, Any] | None", options.get("catalog")))
    return open_store(plan.root, storage_options)


class _Vended:
    """Asks a catalog for what reads a table's files; pickles."""

    def __init__(self, table: str, catalog: Mapping[str, Any] | None) -> None:
        self._table = table
        self._catalog = catalog

    def __call__(self) -> dict[str, str]:
        return storage_options_of(open_iceberg(self._table, self._catalog))


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"as_of={text!r} is no time; wanted is one such as 2024-05-01T00:00:00+00:00"
        raise SchemaError(msg) from error
