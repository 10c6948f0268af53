"""Repositories of the Hugging Face Hub."""

from streaming_core._store._hf._store import HfStore, hf_from_url

__all__ = ["HfStore", "hf_from_url"]
