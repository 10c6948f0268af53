"""Checkpoints that an earlier release saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.compat.cases import Case, cases
from tests.compat.epochs import epochs_after, located
from tests.compat.jobs import opened

from streaming_core.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

_PLAIN = (
    "epoch",
    "sample_in_epoch",
    "num_canonical_nodes",
    "shuffle_seed",
    "initial_physical_nodes",
)


@cases("checkpoints")
def test_a_checkpoint_goes_on(case: Case, tmp_path: Path) -> None:
    """On the same ranks and on others, the next two epochs give exactly the recorded samples."""
    case.fixture.unpack(tmp_path)
    settings, given = case.settings, located(case.settings["dataset"], tmp_path)
    state, drop_last = settings["state"], settings["drop_last"]
    assert epochs_after(given, settings["world"], state, drop_last=drop_last) == settings["ids"]
    if settings.get("plain"):  # as mosaicml-streaming saves it
        plain = {key: state[key] for key in _PLAIN}
        assert epochs_after(given, settings["world"], plain, drop_last=drop_last) == settings["ids"]
    other = settings["other"]
    if other is not None:
        there = {**given, "batch_size": other["batch_size"]}
        found = epochs_after(there, other["world"], state, drop_last=drop_last)
        assert found == other["ids"]


@cases("checkpoints", lambda name: name in {"in-order", "py1e-two-nodes", "stratified-py1e"})
def test_a_checkpoint_of_other_data_is_refused(case: Case, tmp_path: Path) -> None:
    """The error says that data or settings differ, and which."""
    case.fixture.unpack(tmp_path)
    given = located(case.settings["dataset"], tmp_path)
    with pytest.raises(CheckpointError, match=r"other data or settings.*samples_per_stream"):
        opened({**given, "streams": given["streams"][:1]}).load_state_dict(case.settings["state"])
    with pytest.raises(CheckpointError, match="shuffle"):
        opened({**given, "shuffle": not given["shuffle"]}).load_state_dict(case.settings["state"])
