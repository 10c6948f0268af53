"""torchdata's StatefulDataLoader over files that nobody converted."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.pipeline.making import halves
from torchdata.stateful_dataloader import StatefulDataLoader

from streaming_core import Stream, StreamingDataset, Transforms

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


def _ids(samples: list[dict[str, Any]]) -> list[int]:
    return [int(sample["id"]) for sample in samples]


@pytest.mark.parametrize(
    ("way", "transform"),
    [
        ({"num_workers": 0}, None),
        ({"num_workers": 0}, halves),
        pytest.param(
            {"num_workers": 2, "multiprocessing_context": "fork"},
            halves,
            marks=pytest.mark.process,
        ),
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn"},
            halves,
            marks=pytest.mark.process,
        ),
    ],
    ids=["in process", "in process, halves", "fork", "spawn"],
)
def test_its_state_goes_on_with_exactly_the_rest(
    parquet_folder: Path, way: dict[str, Any], transform: Any
) -> None:
    """Within a row group, and within the rows of one sample; nothing is lost or comes twice."""

    def made(way: dict[str, Any] = way) -> Any:
        dataset = StreamingDataset(
            streams=[Stream(local=f"{parquet_folder}/*.parquet", columns=["id"])],
            batch_size=9,
            shuffle=True,
            transforms=Transforms.of(transform=transform),
        )
        return StatefulDataLoader(dataset, batch_size=9, collate_fn=_ids, **way)

    # A single worker has what no worker would have.
    whole = list(made(way if way["num_workers"] > 1 else {"num_workers": 0}))
    times = 1 if transform is None else 2
    assert sorted(itertools.chain(*whole)) == sorted(list(range(250)) * times)
    loader = made()
    first = list(itertools.islice(loader, 5))
    resumed = made()
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert first + list(resumed) == whole
