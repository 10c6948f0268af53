"""How a cache fetches, checks and holds shards."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming_core._codec import hash_names
from streaming_core.errors import SchemaError
from streaming_reader._cache._opened import mappings_allowed

__all__ = ["CacheSettings"]

_MOST_PAUSES = 60.0


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What may be chosen about a cache; checked when it is made.

    Example:
        >>> CacheSettings(tries=3).timeout
        60.0
    """

    keep_zip: bool = False
    """Whether a compressed file stays beside what it expands to; without a remote it always does.
    """
    validate_hash: str | None = None
    """A hash that every stored file must have in the index, and that is checked. Without it, the
    cheap ones are, and those beside the index."""
    tries: int = 2
    """How many requests for one file may fail before that is an error."""
    timeout: float = 60.0
    """Seconds after which a request that brings nothing has failed; how long it takes in all is
    limited by nothing."""
    allow_unsafe: bool = False
    """Whether columns whose decoding can run code (`pkl`) are admitted."""
    max_open: int = field(default_factory=mappings_allowed)
    """How many shards the cache itself keeps mapped; those in use elsewhere stay mapped as well.
    By default a quarter of the files that the process may have open, within bounds, which all
    caches of the process share."""

    @property
    def stall_seconds(self) -> float:
        """Seconds without a byte after which a shard cannot be had: all tries, and their pauses."""
        return self.timeout * max(1, self.tries) + min(2.0 ** (self.tries - 1), _MOST_PAUSES)

    def __post_init__(self) -> None:
        """Refuse what could never work."""
        if self.validate_hash is not None and self.validate_hash not in hash_names():
            msg = f"no hash {self.validate_hash!r} to validate; valid are {', '.join(hash_names())}"
            raise SchemaError(msg)
        if not self.timeout > 0:
            msg = f"the timeout of a download must be more than 0 seconds, came {self.timeout!r}"
            raise SchemaError(msg)
        if self.max_open < 1:
            msg = f"at least one shard must be open at a time, came max_open={self.max_open!r}"
            raise SchemaError(msg)
