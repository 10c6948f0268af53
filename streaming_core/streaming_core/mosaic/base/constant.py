"""Constants."""

from __future__ import annotations

from typing import Final

__all__ = ["TICK"]

TICK: Final = 0.007
"""Seconds between two looks at what is waited for."""
