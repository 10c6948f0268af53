"""Writing to the hub, which is done by its own client."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._store._http import Refusal, RefusedError
from streaming_core.errors import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from streaming_core._store._hf._gate import HfGate

__all__ = ["Change"]

_OVERTAKEN: Final = frozenset({409, 412})


class Change:
    """A file that is to be in the next commit, or with None is not to be."""

    __slots__ = ("_gate", "_operation", "_title")

    def __init__(self, gate: HfGate, path: str, data: bytes | None) -> None:
        """Send the bytes of a large file already; any number of threads may do so at once."""
        hub = _client_package()
        self._gate = gate
        self._operation: Any
        if data is None:
            self._title = f"Delete {path}"
            self._operation = hub.CommitOperationDelete(path_in_repo=path)
            return
        self._title = f"Put {path}"
        self._operation = hub.CommitOperationAdd(path_in_repo=path, path_or_fileobj=data)
        with _translated(gate):
            _client(gate).preupload_lfs_files(additions=[self._operation], **_address(gate))

    def commit(self, *, parent: str | None = None) -> str:
        """Make the commit and return its name; with `parent` only if that is the newest.

        Raises:
            StoreBusyError: Another commit came between.
            RefusedError: The hub refuses.
            StoreError: The client failed.
        """
        with _translated(self._gate):
            done = _client(self._gate).create_commit(
                operations=[self._operation],
                commit_message=self._title,
                parent_commit=parent,
                **_address(self._gate),
            )
        return str(done.oid)


def _client_package() -> Any:  # noqa: ANN401 - of a package that may be missing
    return require("huggingface_hub", extra="hf", purpose="writing to hf://")


def _client(gate: HfGate) -> Any:  # noqa: ANN401 - as above
    place = gate.origin.text + gate.base
    return _client_package().HfApi(endpoint=place, token=gate.token() or False)


def _address(gate: HfGate) -> dict[str, str]:
    repo = gate.repo
    kind = repo.kind.removesuffix("s")
    return {"repo_id": repo.name, "repo_type": kind, "revision": repo.revision}


@contextmanager
def _translated(gate: HfGate) -> Generator[None]:
    """Turn what the hub's client raises into what our own would."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the client passes on what its own HTTP client raises
        # Not chained: addresses in these errors may be signed.
        raise _translation(gate, error) from None


def _translation(gate: HfGate, error: Exception) -> Exception:
    response: Any = getattr(error, "response", None)
    if response is None:
        msg = f"the client of {gate.origin.text} failed with {type(error).__name__}"
        return StoreError(msg)
    status = int(response.status_code)
    headers = {name.lower(): value for name, value in response.headers.items()}
    refusal = gate.explain(headers, b"")
    if not refusal.message:
        refusal = Refusal(refusal.code, str(getattr(error, "server_message", None) or ""))
    refused = RefusedError(status, headers, refusal)
    if status in _OVERTAKEN:
        msg = f"{gate.repo.name} at {gate.origin.text}: another commit came between, {refused}"
        return StoreBusyError(msg, retry_after=refused.retry_after)
    return refused
