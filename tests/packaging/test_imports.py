"""Importing costs little, and brings only what was asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import streaming_core

OPTIONAL = {
    "PIL",
    "azure",
    "boto3",
    "botocore",
    "brotli",
    "dask",
    "databricks",
    "deltalake",
    "fsspec",
    "google",
    "huggingface_hub",
    "obstore",
    "oci",
    "paramiko",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "ray",
    "rich",
    "snappy",
    "torch",
    "typer",
}
BASE = {"msgspec", "numpy", "xxhash", "zstandard"}


FACADE = "import streaming_core"
FEATURES = (
    "from streaming_core import load_index",
    "from streaming_core import open_store",
    "from streaming_core import MDSWriter",
    "from streaming_core import mds_encodings",
    "import streaming_reader",
    "import streaming_writer",
)
# Each statement runs in a child that is forked before anything is imported.
_LOADED = """
import json, os, sys
for statement in sys.argv[1:]:
    if os.fork() == 0:
        exec(statement)
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, statement
"""


def _loaded(*statements: str) -> list[set[str]]:
    """Return the top-level modules that a fresh interpreter holds after each statement alone."""
    command = [sys.executable, "-c", _LOADED, *statements]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines: list[list[str]] = [json.loads(line) for line in done.stdout.splitlines()]
    return [{name.partition(".")[0] for name in names} for names in lines]


@pytest.mark.process
@pytest.mark.essential
def test_features_load_what_they_need_and_no_optional_dependency() -> None:
    """`import streaming_core` brings no package at all, what the base offers needs no extra."""
    plain, facade, *loaded = _loaded("pass", FACADE, *FEATURES)
    assert "streaming_core" in facade
    assert (facade - plain) - set(sys.stdlib_module_names) == {"streaming_core"}
    wrong = {
        statement: names & OPTIONAL
        for statement, names in zip(FEATURES, loaded, strict=True)
        if names & OPTIONAL or not names & {"streaming_core", "streaming_reader"}
    }
    assert not wrong


@pytest.mark.process
def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    """Completion in a shell shows the public names before their first use."""
    code = (
        "import streaming_core as s; print(set(s.__all__) <= set(dir(s)), 'MDSWriter' in vars(s))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MDSWritr", "did you mean 'MDSWriter'?"),
        ("zzzzzzzz", "dir(streaming_core) lists the public names"),
    ],
)
def test_an_unknown_name_is_an_attribute_error_with_a_hint(name: str, hint: str) -> None:
    """A typo says what was probably meant."""
    with pytest.raises(AttributeError) as caught:
        getattr(streaming_core, name)
    assert str(caught.value) == f"module 'streaming_core' has no attribute {name!r}; {hint}"


def test_probing_for_a_private_name_gives_the_plain_error() -> None:
    """Tools that probe for dunder names get the ordinary answer."""
    assert not hasattr(streaming_core, "__wrapped__")


@pytest.mark.process
def test_all_names_can_be_imported_without_torch() -> None:
    """`import *` in the base install brings all but the loader, whose name says what it needs."""
    code = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
from streaming_core import *
assert MDSWriter and StreamingDataset and "StreamingDataLoader" not in globals()
import streaming_core
try:
    streaming_core.StreamingDataLoader
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "streaming-core[torch]" in done.stdout
