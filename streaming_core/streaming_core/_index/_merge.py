"""One index over several data sets that lie in folders below it; the pure part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streaming_core._index._doubles import NameBook
from streaming_core._index._problems import Problems, shown
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileRole
from streaming_core._index._table import ShardTable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["merge_tables"]


def merge_tables(parts: Sequence[tuple[str, ShardTable]]) -> ShardTable:
    """Return the shards of all parts in order, each file under the prefix of its part.

    A prefix is the part's folder relative to the merged index, such as `part-0` or `a/b`; empty
    for a part that lies beside it. Parts and shards may be empty.

    Raises:
        IndexInvalidError: A prefix is unsafe, or two files would have one name.

    Example:
        >>> from streaming_core._index import parse_index
        >>> empty = parse_index(b'{"shards": [], "version": 2}', "example")
        >>> merge_tables([("part-0", empty), ("part-1", empty)]).num_shards
        0
    """
    merged = ShardTable.concatenate([table.with_prefix(prefix) for prefix, table in parts])
    names = {role: merged.basenames(role) for role in ROLES}
    book = NameBook()
    for role in ROLES:
        book.add(list(names[role]), np.arange(merged.num_shards), role)

    def name_of(shard: int, role: FileRole) -> str:
        return names[role][shard]

    problems = Problems()
    for (shard, role), (owner, owner_role), name in book.doubles(name_of):
        taken = f"$.shards[{owner}].{ROLE_KEYS[owner_role]}"
        text = f"the name {shown(name)} is that of {taken} already; give parts different prefixes"
        problems.add(f"$.shards[{shard}].{ROLE_KEYS[role]}.basename", text, "duplicate")
    problems.check("merged index")
    return merged
