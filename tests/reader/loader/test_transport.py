"""Batches in slots: equal values, nothing overwritten in use, nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.reader.loader.standin import Boom, descriptors

from streaming_core.errors import SchemaError
from streaming_reader._transport import Counted, Delivery, Failure, Receiver, Sender, SlotFile
from streaming_reader._transport._slots import round_capacity

Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - the kind that users have

BIG = 3000
DTYPES = ["u1", "<u2", "i8", "f2", "f4", "f8", "c8", "?", "datetime64[ns]", "S7", "U3"]
TENSOR_DTYPES = [
    torch.uint8, torch.int16, torch.int64, torch.bool, torch.bfloat16, torch.float16,
    torch.float32, torch.float64, torch.complex64, torch.uint16, torch.float8_e4m3fn,
]  # fmt: skip


def _ends(per_worker: int = 3, workers: int = 1) -> tuple[Receiver, Sender]:
    receiver = Receiver(workers, per_worker)
    receiver.sender.attach(0)
    return receiver, receiver.sender


def _through(sender: Sender, payload: object, rows: int = 1) -> Delivery:
    """Send and receive in one process: what torch's queue does is to pickle."""
    delivery = pickle.loads(
        multiprocessing.reduction.ForkingPickler.dumps(sender.send(payload, rows))
    )
    assert isinstance(delivery, Delivery)
    return delivery


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return bool(
            a.dtype == b.dtype
            and a.shape == b.shape
            and a.reshape(-1).view(torch.uint8).equal(b.reshape(-1).view(torch.uint8))
        )
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


@st.composite
def _tensors(draw: Any) -> torch.Tensor:
    kind = draw(st.sampled_from(TENSOR_DTYPES))
    shape = draw(st.sampled_from([(), (0,), (0, 3), (1,), (7, 5), (40, 30), (3, 1000, 2)]))
    count = int(np.prod(shape))
    data = torch.from_numpy(np.random.default_rng(count).integers(0, 2, (count, 16), np.uint8))
    size = torch.empty(0, dtype=kind).element_size()
    tensor = data[:, :size].contiguous().reshape(-1).view(kind).reshape(shape)
    if draw(st.booleans()) and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    return tensor


_arrays = st.sampled_from(DTYPES).flatmap(
    lambda kind: st.sampled_from([(), (0,), (2, 3), (50, 30), (1, 4000)]).flatmap(
        lambda shape: hnp.arrays(kind, shape, fill=hnp.from_dtype(np.dtype(kind), allow_nan=False))
    )
)
_leaves = st.one_of(
    _tensors(),
    _arrays,
    _arrays.map(lambda a: a[::2] if a.ndim else a),
    st.binary(max_size=9).map(lambda b: b * 800),
    st.text(max_size=5),
    st.integers(),
    st.none(),
)
_payloads = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.tuples(inner, inner),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.lists(inner, max_size=3).map(lambda items: OrderedDict(enumerate(items))),
    ),
    max_leaves=8,
)


@given(payload=_payloads, slots=st.integers(0, 1))
def test_any_nesting_arrives_as_it_was_sent(payload: Any, slots: int) -> None:
    """Types, values, shapes and order of keys are kept, through a slot and without one."""
    receiver, sender = _ends(1)
    kept = None if slots else _through(sender, np.zeros(BIG))
    delivery = _through(sender, payload, 17)
    assert delivery.rows == 17
    assert _equal(delivery.value, payload)
    receiver.close()
    del kept


def test_what_arrives_may_be_written_to() -> None:
    """Arrays and tensors are writable, large or small, in a slot or not; read-only ones are not."""
    receiver, sender = _ends(1)
    for _ in range(2):  # the second time without a free slot
        payload = {
            "big": np.zeros(BIG),
            "small": np.zeros(3),
            "t": torch.zeros(BIG),
            "u": torch.zeros(3),
        }
        fixed = np.zeros(BIG)
        fixed.flags.writeable = False
        kept = _through(sender, {**payload, "fixed": fixed}).value
        assert not kept.pop("fixed").flags.writeable
        for name in kept:
            kept[name] += 1
            assert kept[name].sum() == len(kept[name])
    receiver.close()


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    """Pickling them would end in an error of Python's stack."""
    receiver, sender = _ends(1)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SchemaError, match="nested more deeply"):
        sender.send({"x": [deep]}, 1)
    assert _through(sender, {"x": [1]}).value == {"x": [1]}
    receiver.close()
    while isinstance(deep, list):  # Python would free it by recursion
        deep = deep.pop()


def test_arrow_batches_travel_in_slots() -> None:
    """Buffers of Arrow are views of the slot, and hold it as arrays do."""
    receiver, sender = _ends(1)
    batch = pa.record_batch({"x": np.arange(BIG), "s": [str(i) for i in range(BIG)]})
    delivery = _through(sender, batch)
    assert delivery.value.equals(batch)
    assert sender._take(1) is None
    del delivery
    assert sender._take(1) is not None
    receiver.close()


# --- when a slot comes back -----------------------------------------------------------------------


def _views(value: dict[str, Any], rng: random.Random) -> list[Any]:
    """Return some view of a view of the batch, of every kind that a trainer makes."""
    tensor, array = value["t"], value["a"]
    kinds = [
        lambda: tensor,
        lambda: tensor[10:20][::2],
        lambda: tensor.numpy()[5:],
        lambda: torch.from_numpy(tensor[1:].numpy()).view(-1),
        tensor.untyped_storage,
        lambda: torch.utils.dlpack.from_dlpack(tensor),
        lambda: tensor.detach().unsqueeze(0).expand(3, -1),
        lambda: array[::3].reshape(-1)[1:],
        lambda: memoryview(array)[3:9],
        lambda: torch.from_numpy(array)[4:],
        lambda: np.asarray(memoryview(array[5:])),
        lambda: torch.frombuffer(array, dtype=torch.int64)[1:].chunk(2)[0],
    ]
    return [rng.choice(kinds)() for _ in range(rng.randint(1, 3))]


def _content(view: Any) -> int:
    if isinstance(view, torch.UntypedStorage):
        return int(torch.empty(0, dtype=torch.int64).set_(view)[0])
    if isinstance(view, memoryview):
        return int(view[0])
    return int(torch.as_tensor(view).reshape(-1)[0])


@pytest.mark.parametrize("seed", range(4))
def test_no_batch_changes_while_any_view_of_it_lives(seed: int) -> None:
    """Views of views keep a slot, the last one frees it, and free slots are used again."""
    rng = random.Random(seed)  # noqa: S311 - views to try, repeatably
    receiver, sender = _ends(3)
    held: list[tuple[int, list[Any]]] = []
    in_slots = 0
    for number in range(150):
        size = rng.choice([400, 3000, 3001, 50_000])
        batch = {"t": torch.full((size,), number), "a": np.full(size, number)}
        free = any(region is None or region.is_free for region in sender._regions)
        value = _through(sender, batch).value
        in_slots += free
        held.append((number, _views(value, rng)))
        del value
        while len(held) > rng.randint(0, 4):
            held.pop(rng.randrange(len(held)))
        for wanted, views in held:
            assert {_content(view) for view in views} == {wanted}
    assert in_slots > 75
    held.clear()
    del views
    gc.collect()
    assert all(region is None or region.is_free for region in sender._regions)
    receiver.close()


def test_a_slot_is_used_again_at_once() -> None:
    """One batch after the other needs one slot, whatever their sizes."""
    receiver, sender = _ends(3)
    for size in (BIG, 10 * BIG, BIG, 1000 * BIG):
        value = _through(sender, np.full(size, size)).value
        assert value[-1] == size
        del value
    assert [region is not None for region in sender._regions] == [True, False, False]
    receiver.close()


@pytest.mark.process
def test_a_forked_child_does_not_free_what_the_trainer_holds() -> None:
    """A child has copies of the views; dropping them, and ending, leave the slot alone."""
    receiver, sender = _ends(1)
    value = _through(sender, np.full(BIG, 1)).value
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        del value
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sender._take(1) is None
    assert set(value) == {1}
    receiver.close()


def test_views_outlive_both_ends() -> None:
    """After the receiver is closed and gone, what was delivered is as it was."""
    receiver, sender = _ends(1)
    value = _through(sender, torch.full((BIG,), 7)).value
    receiver.close()
    del receiver, sender
    gc.collect()
    assert value.eq(7).all()


def test_a_batch_sent_on_to_another_process_is_whole() -> None:
    """Tensors of a slot can be pickled as usual, and frees the slot where torch moves them."""
    receiver, sender = _ends(1)
    value = _through(sender, {"a": np.arange(BIG), "t": torch.arange(BIG)}).value
    copy = pickle.loads(pickle.dumps(value))
    context = torch.multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    queue.put(value)
    del value
    moved = queue.get()
    assert np.array_equal(copy["a"], moved["a"])
    assert copy["t"].equal(moved["t"])
    assert copy["t"].equal(torch.arange(BIG))
    receiver.close()


# --- reserving ------------------------------------------------------------------------------------


def test_reserved_arrays_are_sent_without_a_copy() -> None:
    """What was gathered into a slot stays there; other arrays find room behind it."""
    receiver, sender = _ends(2)
    for extra in (BIG, 500 * BIG):
        arrays = sender.reserve(
            {"x": ("i8", (BIG, 2)), "y": (np.uint16, (0,)), "z": ("u1", (BIG,))}
        )
        assert arrays is not None
        arrays["x"][:] = 5
        arrays["z"][:] = 6
        payload = {
            "x": torch.from_numpy(arrays["x"])[:-1],  # a short batch
            "more": np.full(extra, 8),
            "z": arrays["z"],
            "y": arrays["y"],
        }
        in_place = sender._pending
        assert in_place is not None
        before = in_place[1].view()[64:72].tobytes()
        value = _through(sender, payload).value
        assert before == (5).to_bytes(8, "little")
        assert value["x"].shape == (BIG - 1, 2)
        assert value["x"].eq(5).all()
        assert (value["more"] == 8).all()
        assert (value["z"] == 6).all()
        assert value["y"].shape == (0,)
        arrays["x"][0, 0] = 99  # forbidden by contract, and shows that it is the same memory
        assert value["x"][0, 0] == 99
        del value, arrays, payload
    receiver.close()


def test_a_reservation_that_is_not_sent_is_no_leak() -> None:
    """Reserving again, or sending something small, gives the slot back."""
    receiver, sender = _ends(1)
    for _ in range(5):
        assert sender.reserve({"x": ("i8", (BIG,))}) is not None
    assert _through(sender, [1]).value == [1]
    arrays = sender.reserve({"x": ("i8", (BIG,))})
    value = _through(sender, arrays).value
    assert sender.reserve({"x": ("i8", (BIG,))}) is None
    del value
    assert sender.reserve({"x": ("i8", (BIG,))}) is not None
    receiver.close()


# --- resources ------------------------------------------------------------------------------------


def test_descriptors_come_back() -> None:
    """Hundreds of receivers leave as many open files as there were."""
    gc.collect()  # what earlier tests left is not ours
    before = descriptors()
    for _ in range(200):
        receiver, sender = _ends(4)
        kept = _through(sender, np.zeros(BIG)).value
        receiver.close()
        del kept, receiver, sender
    gc.collect()
    assert descriptors() == before


def test_a_closed_file_is_never_mapped() -> None:
    """Mapping after the end is an error, and not a batch of zeros."""
    file = SlotFile(1)
    file.close()
    with pytest.raises(ValueError, match="closed when their iterator ended"):
        file.map(0, 10)


def test_without_anonymous_memory_a_nameless_file_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Where memfd is missing a file in the temp dir is used, of which no name is ever left."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    receiver, sender = _ends(2)
    assert not list(tmp_path.iterdir())
    value = _through(sender, np.arange(100 * BIG)).value
    assert np.array_equal(value, np.arange(100 * BIG))
    receiver.close()


def test_more_than_a_slot_can_hold_travels_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no memory is given for a slot the batch still arrives."""
    receiver, sender = _ends(1)

    def no_memory(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "posix_fallocate", no_memory)
    assert np.array_equal(_through(sender, np.arange(BIG)).value, np.arange(BIG))
    receiver.close()


@given(st.integers(0, 1 << 45))
def test_capacity_is_enough_and_little_more(size: int) -> None:
    """Mapped is what is needed, at most an eighth more beyond the smallest step."""
    capacity = round_capacity(size)
    assert size <= capacity <= max(size * 9 // 8 + 1, 1 << 16) + (1 << 16)
    assert capacity % (1 << 16) == 0


def test_an_error_that_cannot_be_pickled_arrives_as_text() -> None:
    """Type and attributes survive where they can, and the text always does."""

    class Local(Exception):  # noqa: N818 - cannot be imported anywhere else
        pass

    error = Failure(Boom(3, "url"), "in worker 1").error()
    assert isinstance(error, Boom)
    assert (error.shard, error.url) == (3, "url")
    assert "in worker 1" in error.__notes__[0]
    error = Failure(Local("hm"), "in worker 1").error()
    assert type(error) is RuntimeError
    assert str(error) == "Local: hm"
    assert type(Failure(StopIteration(1), "here").error()) is RuntimeError


def test_counted_names_the_rows() -> None:
    """A batch that does not tell its samples comes with their number."""
    assert Counted({"values": [1, 2, 3], "offsets": [0, 3]}, 1).rows == 1
