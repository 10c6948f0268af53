"""Which of the two services a `dbfs:` URL means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streaming_core._names import name_problem
from streaming_core._store._databricks._account import KNOWN, SECRET, workspace_of
from streaming_core._store._databricks._dbfs import DbfsStore
from streaming_core._store._databricks._gate import DatabricksGate
from streaming_core._store._databricks._volume import VolumeStore
from streaming_core._store._options import Options
from streaming_core._store._resolve import public_url
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._store._options import StorageOptions

__all__ = ["databricks_from_url"]

_VOLUME_PARTS: Final = 4
_URL: Final = re.compile(r"dbfs:/+(.*)", re.DOTALL | re.IGNORECASE)


def databricks_from_url(url: str, options: StorageOptions | None = None) -> VolumeStore | DbfsStore:
    """Return the store that a `dbfs:` URL names: of a volume below `/Volumes`, else of DBFS.

    Raises `SchemaError` if it names no folder, nobody says which workspace, or options are none.

    Example:
        >>> options = {"host": "https://example.org", "token": "secret"}
        >>> databricks_from_url("dbfs:/Volumes/catalog/schema/volume/train", options)
        VolumeStore('dbfs:/Volumes/catalog/schema/volume/train')
        >>> databricks_from_url("dbfs:/train", options)
        DbfsStore('dbfs:/train')
    """
    match = _URL.fullmatch(url)
    folder = match[1].rstrip("/") if match else ""
    parts = folder.split("/")
    in_volume = parts[0] == "Volumes"
    problem = name_problem(folder)
    if problem is not None or (in_volume and len(parts) < _VOLUME_PARTS):
        msg = (
            f"{public_url(url)!r} names no folder: write "
            "dbfs:/Volumes/<catalog>/<schema>/<volume>/<folder>, or dbfs:/<folder>"
        )
        raise SchemaError(msg)
    known = Options(options, known=KNOWN, secret=SECRET)
    host = workspace_of(known)
    try:
        gate = DatabricksGate(host, known)
    except ValueError as error:
        msg = f"the workspace {host!r} cannot be used: {error}"
        raise SchemaError(msg) from None
    kind = VolumeStore if in_volume else DbfsStore
    return kind(gate, "dbfs:", f"{folder}/")
