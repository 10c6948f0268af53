"""Writing to the hub, who may do so, and what its own client makes of it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.hf import LARGE_BYTES, Hub

from streaming_core import MDSWriter, StreamingDataset
from streaming_core._store._hf import HfStore
from streaming_core._store._hf._place import token_of
from streaming_core._store._options import Options
from streaming_core.errors import (
    AlreadyExistsError,
    MissingExtraError,
    StoreBusyError,
)

if TYPE_CHECKING:
    from pathlib import Path

_REPO = "datasets/owner/name"
_URL = f"hf://{_REPO}/folder"
_LARGE = bytes(range(256)) * (LARGE_BYTES // 256 + 1)


def _store(hub: Hub, url: str = _URL, **options: Any) -> HfStore:
    return HfStore.at(url, {"endpoint_url": hub.url, **options})


# --- writing --------------------------------------------------------------------------------------


def test_create_only_does_not_overtake_another_commit(hub: Hub) -> None:
    """A commit that came between makes it fail for now; the next try looks again."""
    store = _store(hub)
    hub.between = _REPO
    with pytest.raises(StoreBusyError, match="came between"):
        store.put("a", [b"body"], if_absent=True)
    assert store.put("a", [b"body"], if_absent=True).size == 4
    with pytest.raises(AlreadyExistsError, match="exists already"):
        store.put("a", [b"other"], if_absent=True)
    hub.commit(_REPO, {"folder/b": b"of another"})
    with pytest.raises(AlreadyExistsError, match="exists already"):
        store.put("b", [b"other"], if_absent=True)


def test_putting_the_same_again_is_no_error(hub: Hub) -> None:
    """The hub's client makes no commit where nothing changes; the store goes on all the same."""
    store = _store(hub)
    info = store.put("a", [b"body"])
    commit = hub.revisions[_REPO]["main"]
    assert store.put("a", [b"body"]) == info
    assert hub.revisions[_REPO]["main"] == commit
    assert store.get("a") == b"body"


def test_writing_without_the_client_names_the_extra(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading needs no package; writing says which one."""
    hub.commit(_REPO, {"folder/a": b"body"})
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    store = _store(hub)
    assert store.get("a") == b"body"
    with pytest.raises(MissingExtraError, match=r"streaming-core\[hf\]"):
        store.put("a", [b"x"])


# --- tokens ---------------------------------------------------------------------------------------


def test_tokens_come_from_option_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest wins; `anonymous` shows none."""

    def token(**given: Any) -> str:
        return token_of(Options(given, known=("anonymous",), secret=("token",)))

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert token() == ""
    (tmp_path / "token").write_text("in-file\n")
    assert token() == "in-file"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert token() == ""
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "in-environment")
    assert token() == "in-environment"
    assert token(token="given") == "given"  # noqa: S106 - no token
    assert token(anonymous=True) == ""


def test_a_token_that_ran_out_is_replaced(hub: Hub) -> None:
    """A function is asked again when the hub refuses, and the read goes on."""
    hub.commit(_REPO, {"folder/a": b"body"})
    hub.token = "hf_1"  # noqa: S105 - of a hub in this process
    given = iter(["hf_1", "hf_2", "hf_3"])
    store = HfStore.at(_URL, lambda: {"endpoint_url": hub.url, "token": next(given)})
    assert store.get("a") == b"body"
    hub.token = "hf_2"  # noqa: S105 - as above
    assert store.get("a") == b"body"
    assert b"hf_2" not in pickle.dumps(_store(hub, token="hf_2"))  # noqa: S106 - as above


# --- a data set -----------------------------------------------------------------------------------


def test_a_data_set_is_written_and_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the writer commits, shards and index, a reader streams."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    samples = [{"text": f"sample {i}", "body": bytes([i]) * 5_000} for i in range(100)]
    columns = {"text": "str", "body": "bytes"}
    with MDSWriter(out=f"{_URL}/train", columns=columns, size_limit=1 << 18) as out:
        for sample in samples:
            out.write(sample)
    local = str(tmp_path / "cache")
    data = StreamingDataset(remote=f"{_URL}/train", local=local, shuffle=False, batch_size=1)
    assert [dict(sample) for sample in data] == samples
    assert hub.cdn.count("GET") > 0


# --- the hub's own client -------------------------------------------------------------------------

_CLIENT = """
import sys
from huggingface_hub import HfFileSystem, hf_hub_download
import hashlib
repo = "owner/name"
path = hf_hub_download(repo, "folder/large", repo_type="dataset")
print(hashlib.sha256(open(path, "rb").read()).hexdigest())
files = HfFileSystem()
found = files.find("datasets/owner/name/folder", detail=True)
print(sorted((name, entry["size"]) for name, entry in found.items()))
print(files.cat_file("datasets/owner/name/folder/small"))
"""


@pytest.mark.process
def test_agrees_with_the_hubs_own_client(hub: Hub, tmp_path: Path) -> None:
    """What we commit, the hub's client downloads and lists as we do."""
    store = _store(hub)
    store.put("large", [_LARGE])
    store.put("small", [b"body"])
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    digest, names, small = done.stdout.splitlines()
    assert digest == store.head("large").etag
    listed = [(f"{_REPO}/folder/{info.key}", info.size) for info in store.list()]
    assert names == repr(listed)
    assert small == repr(store.get("small"))
