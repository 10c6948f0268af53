"""What the refusals of the Blob service mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_core._store._azure._place import FORMS
from streaming_core.errors import AccessDeniedError, LastingError, StoreError

if TYPE_CHECKING:
    from streaming_core._store._azure._place import Place
    from streaming_core._store._http import RefusedError

__all__ = ["EXISTS", "meaning"]

EXISTS: Final = frozenset({"BlobAlreadyExists", "UnauthorizedBlobOverwrite"})
"""The answers to a put that may only create."""
_HIDDEN: Final = frozenset(
    {"ResourceNotFound", "NoAuthenticationInformation", "PublicAccessNotPermitted"}
)
"""What somebody is told who may not even know whether it is there."""
_DENIED: Final = frozenset({"BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"})
_CONFLICTS: Final = frozenset({409, 412})
_DENIALS: Final = frozenset({401, 403})
_REMEDIES: Final = {
    "BlobArchived": "it is in the archive tier; rehydrate it first",
    "ContainerBeingDeleted": "the container is being deleted; wait, or use another",
    "InvalidBlobOrBlock": (
        "another program has left an unfinished upload under this name, of which Azure keeps the "
        "blocks for a week; upload the blob with that program or give another name"
    ),
    "InvalidBlockList": (
        "another upload of this name was finished meanwhile, which discards the blocks of all "
        "others; see that one program writes it, then try again"
    ),
    "InvalidResourceName": f"check the container's name; the forms of URLs are: {FORMS}",
    "LeaseIdMissing": "somebody holds a lease on it; break the lease or wait until it ends",
    "Md5Mismatch": "the bytes changed on the way; try again",
}
"""What to do, by the service's code."""


def meaning(
    error: RefusedError, what: str, place: Place, *, is_anonymous: bool
) -> StoreError | None:
    """Return the typed error for a refusal; None if its status says it all."""
    code, said = error.refusal.code, f"{what}: {error}"
    if code == "ContainerNotFound":
        return LastingError(
            f"{said}: the account {place.account!r} has no container {place.container!r}; create "
            f"it, or check the URL. Its forms are: {FORMS}"
        )
    if is_anonymous and (code in _HIDDEN or error.status in _DENIALS):
        return AccessDeniedError(
            f"{said}; the request had no credentials: give the storage option account_key, "
            "sas_token, token or connection_string, set one of the variables such as "
            "AZURE_STORAGE_CONNECTION_STRING, or log in where azure-identity finds it (it comes "
            "with pip install 'streaming-core[azure]')"
        )
    if code in _DENIED:
        return AccessDeniedError(f"{said}; a policy of the container protects it")
    if error.status in _CONFLICTS and code in EXISTS | {"ConditionNotMet"}:
        return None
    if code in _REMEDIES:
        return StoreError(f"{said}: {_REMEDIES[code]}")
    # Not every conflict is about what exists already.
    return StoreError(said) if code and error.status in _CONFLICTS else None
