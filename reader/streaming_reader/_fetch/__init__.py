"""What to fetch when, and the threads that do it."""

from streaming_reader._fetch._fetcher import Fetcher
from streaming_reader._fetch._plan import first_uses

__all__ = ["Fetcher", "first_uses"]
