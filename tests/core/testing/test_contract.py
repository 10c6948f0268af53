"""The contract class itself: broken stores fail it, and the failure tells the author why."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

_BACKENDS = '''
import threading

import pytest
from streaming_core._store import Parts
from streaming_core.errors import ObjectNotFoundError, StoreError
from streaming_core.testing import FaultStore, MemoryStore, StoreContract


class Broken(FaultStore):
    """Works, but for what the children do wrong."""

    def child(self, prefix):
        store = super().child(prefix)
        store.__class__ = type(self)
        return store


class Unordered(Broken):
    def list(self, prefix=""):
        return iter(list(super().list(prefix))[::-1])


class ShortRanges(Broken):
    def get_ranges(self, key, ranges):
        data = self.get(key)
        return Parts([data[start:stop] for start, stop in ranges], "")


class ShortStreams(Broken):
    def stream(self, key, *, start=0, max_bytes=None):
        yield memoryview(self.get(key)[start:][: 1 << 20])


first_step_seen = threading.Event()


class TwoSteps(Broken):
    def put(self, key, buffers, *, if_absent=False):
        body = b"".join(bytes(memoryview(buffer).tobytes()) for buffer in buffers)
        super().put(key, [body[:1]], if_absent=if_absent)
        if len(body) > 100_000 and threading.current_thread() is not threading.main_thread():
            first_step_seen.wait(100)  # once: some other thread reads meanwhile
        return super().put(key, [body])

    def get(self, key, *, max_bytes=None):
        body = super().get(key, max_bytes=max_bytes)
        if len(body) == 1:
            first_step_seen.set()
        return body


class Forgetful(Broken):
    def get(self, key, *, max_bytes=None):
        try:
            return super().get(key)
        except ObjectNotFoundError:
            return b""


class LooksThenPuts(Broken):
    def put(self, key, buffers, *, if_absent=False):
        return super().put(key, buffers)


class Same:
    def __eq__(self, other):
        return isinstance(other, Broken)

    __hash__ = Broken.__hash__


class AllEqual(Same, Broken):
    pass


class Trusting(Broken):
    def head(self, key):
        return self.get_info(key)

    def get_info(self, key):
        for info in self.list():
            if info.key == key:
                return info
        raise ObjectNotFoundError(f"head {key!r} in {self.url}: none")


class Unlisting(Broken):
    def list(self, prefix=""):
        list(super().list(prefix))  # refuses what is no prefix
        raise StoreError(f"list in {self.url}: it has no listing")


class SilentlyUnlisting(Broken):
    def list(self, prefix=""):
        return iter(list(super().list(prefix))[:0])


class UnlistingAndLosing(Unlisting):
    def delete(self, key):
        for info in list(super(Unlisting, self).list()):
            super().delete(info.key)


def contract(kind, **lacking):
    class Test(StoreContract):
        unsupported = {"shared-between-processes": "in memory", **lacking}

        @pytest.fixture
        def store(self):
            return kind(MemoryStore())

    return Test


TestWorking = contract(Broken)
TestUnordered = contract(Unordered)
TestShortRanges = contract(ShortRanges)
TestShortStreams = contract(ShortStreams)
TestTwoSteps = contract(TwoSteps)
TestForgetful = contract(Forgetful)
TestLooksThenPuts = contract(LooksThenPuts)
TestAllEqual = contract(AllEqual)
TestTrusting = contract(Trusting)
TestUnlisting = contract(Unlisting, list="a web server")
TestSilentlyUnlisting = contract(SilentlyUnlisting, list="a web server")
TestUnlistingAndLosing = contract(UnlistingAndLosing, list="a web server")
'''


_CAUGHT_BY = {
    "Unordered": {"lists_in_key_order", "lists_by_prefix", "serves_eight_threads"},
    "ShortRanges": {"a_range_outside_is_an_error"},
    "ShortStreams": {
        "refuses_to_start_outside",
        "streams_from_anywhere",
        "streams_no_more_than_allowed",
    },
    "TwoSteps": {"a_reader_never_sees_a_mixture"},
    "Forgetful": {"reading_what_is_missing_names_key_and_place", "refuses_more_than_max_bytes"},
    "LooksThenPuts": {"create_only_refuses_an_existing_object", "create_only_has_one_winner"},
    "AllEqual": {"compares_by_kind_and_root", "a_child_is_the_same_store_deeper"},
    "Trusting": {"refuses_hostile_keys"},
    "SilentlyUnlisting": {"an_empty_store_lists_nothing"},
    "UnlistingAndLosing": {"serves_eight_threads", "deleting_a_folder_of_objects_keeps_them"},
}
_PASSING = ("Working", "Unlisting")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what pytest prints for the broken backends, of each the tests that are about it."""
    folder = tmp_path_factory.mktemp("backends")
    (folder / "test_backends.py").write_text(_BACKENDS)
    command = [sys.executable, "-m", "pytest", "-rfs", "-p", "no:cacheprovider", "-p", "no:xdist"]
    tests = [f"Test{backend}" for backend in _PASSING]
    tests += [f"Test{name}::test_{test}" for name, all_ in _CAUGHT_BY.items() for test in all_]
    done = subprocess.run(
        [*command, *(f"test_backends.py::{test}" for test in tests)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def _failed(report: str, backend: str) -> set[str]:
    return set(
        re.findall(rf"^FAILED test_backends\.py::Test{backend}::test_(\w+)", report, re.MULTILINE)
    )


@pytest.mark.parametrize("backend", _CAUGHT_BY)
def test_a_broken_store_is_caught(report: str, backend: str) -> None:
    """Each way to break the contract fails the tests that are about it."""
    assert _failed(report, backend) == _CAUGHT_BY[backend]


@pytest.mark.parametrize("backend", _PASSING)
def test_a_working_store_passes(report: str, backend: str) -> None:
    """What the broken ones are derived from has no failure, nor has one that cannot list."""
    assert _failed(report, backend) == set()


def test_a_missing_ability_is_skipped_with_its_reason(report: str) -> None:
    """The skip is shown with what the backend's author wrote."""
    assert "shared-between-processes: in memory" in report


def test_a_failure_shows_the_operands(report: str) -> None:
    """The shipped assertions are rewritten as a project's own are."""
    assert re.search(r"^E +At index 0 diff: ", report, re.MULTILINE)
