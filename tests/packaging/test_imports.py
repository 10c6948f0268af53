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
BASE = {"filelock", "msgspec", "numpy", "xxhash", "zstandard"}


def _loaded(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    code = f"import sys; {statement}; import json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    names: list[str] = json.loads(done.stdout)
    return {name.partition(".")[0] for name in names}


def test_the_facade_loads_the_standard_library_only() -> None:
    """`import streaming_core` brings neither numpy nor any other package."""
    extra = _loaded("import streaming_core") - _loaded("pass")
    assert "streaming_core" in extra
    assert extra - set(sys.stdlib_module_names) == {"streaming_core"}


@pytest.mark.parametrize(
    "statement",
    [
        "from streaming_core import load_index",
        "from streaming_core import open_store",
        "from streaming_core import MDSWriter",
        "from streaming_core import mds_encodings",
        "import streaming_reader",
        "import streaming_writer",
    ],
)
def test_base_features_load_no_optional_dependency(statement: str) -> None:
    """What the base offers works, and starts, without any extra."""
    loaded = _loaded(statement)
    assert not loaded & OPTIONAL
    assert loaded & {"streaming_core", "streaming_reader"}


def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    """Completion in a shell shows the public names before their first use."""
    code = (
        "import streaming_core as s; print(set(s.__all__) <= set(dir(s)), 'MDSWriter' in vars(s))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
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
