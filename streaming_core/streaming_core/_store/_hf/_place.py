"""What an `hf://` URL names, and where this machine keeps its token."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from streaming_core._store._resolve import public_url
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._store._options import Options

__all__ = ["COMMIT", "Repo", "repo_of", "token_of"]

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
"""How the hub writes a commit."""
_URL: Final = re.compile(
    r"hf:///?(datasets|models|spaces)/([^/@]+/[^/@]+)"
    r"(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?",
    re.DOTALL,
)
_MAIN: Final = "main"
_YES: Final = frozenset({"1", "on", "yes", "true"})


class Repo(NamedTuple):
    """One repository, at one revision."""

    kind: str
    """`datasets`, `models` or `spaces`."""
    name: str
    """With its owner, as in `owner/name`."""
    revision: str
    """A branch, a tag or a commit."""

    @property
    def web(self) -> str:
        """What precedes the paths of its files; models have no kind in there.

        Example:
            >>> Repo("datasets", "a/b", "main").web, Repo("models", "a/b", "main").web
            ('/datasets/a/b', '/a/b')
        """
        name = quote(self.name)
        return f"/{name}" if self.kind == "models" else f"/{self.kind}/{name}"

    @property
    def api(self) -> str:
        """What precedes the paths of questions about it."""
        return f"/api/{self.kind}/{quote(self.name)}"


def repo_of(url: str, revision: str = "") -> tuple[Repo, str, str]:
    """Return the repository that a URL names, the store's root, and the folder in there.

    `revision` holds where the URL has none; without either it is `main`. Raises `SchemaError`.

    Example:
        >>> repo, root, folder = repo_of("hf://datasets/owner/name@refs/pr/1/train")
        >>> repo.revision, root, folder
        ('refs/pr/1', 'hf://datasets/owner/name@refs%2Fpr%2F1', 'train')
    """
    match = _URL.fullmatch(url)
    if match is None:
        msg = (
            f"{public_url(url)!r} names no repository: write "
            "hf://datasets/<owner>/<name>/<folder>, "
            "with @<revision> after the name if it is not main; models and spaces are named alike, "
            "hf://models/… and hf://spaces/…"
        )
        raise SchemaError(msg)
    kind, name, said, folder = match[1], match[2], unquote(match[3] or ""), match[4] or ""
    if said and revision and said != revision:
        shown = public_url(url)
        msg = f"{shown!r} names one revision, the storage option revision {revision!r} another"
        raise SchemaError(msg)
    chosen = said or revision
    root = f"hf://{kind}/{name}" + (f"@{quote(chosen, safe='')}" if chosen else "")
    return Repo(kind, name, chosen or _MAIN), root, folder.strip("/")


def token_of(options: Options) -> str:
    """Return the token to show to the hub now; empty if there is none."""
    if options.get("anonymous"):
        return ""
    token = options.get("token")
    if token is None and os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() not in _YES:
        token = options.get("token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") or _token_in_file()
    return str(token or "").strip()


def _token_in_file() -> str:
    """Return the token that logging in has left; read anew each time, as it may change."""
    named = os.environ.get("HF_TOKEN_PATH")
    if named:
        path = Path(named)
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        path = Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface") / "token"
    try:
        text = Path(os.path.expanduser(path)).read_text("utf-8")  # noqa: PTH111 - there may be no home
        return text.replace("\n", "").strip()
    except (OSError, UnicodeDecodeError):
        return ""
