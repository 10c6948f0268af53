"""What a user says of a store: values that belong together are read together."""

from __future__ import annotations

import pickle
from itertools import count

import pytest

from streaming_core._store._options import Options
from streaming_core.errors import AccessDeniedError


class _Renewing(str):
    """A name; whoever looks it up has the options renewed meanwhile, as another thread may."""

    __slots__ = ("options",)
    options: Options

    def __hash__(self) -> int:
        self.options.renew(self.options.renewals)
        return super().__hash__()


def test_values_read_together_are_of_one_answer() -> None:
    """A key is never paired with the secret of another, though both are renewed meanwhile."""
    turns = count()

    def given() -> dict[str, int]:
        turn = next(turns)
        return {"key": turn, "secret": turn}

    name = _Renewing("key")
    name.options = options = Options(given, known=("key",), secret=("secret",))
    first, second = options.together(name, "secret"), options.together(name, "secret")
    assert first[0] == first[1] < second[0] == second[1]


def test_values_that_are_not_set_are_none() -> None:
    """As many come back as were asked for."""
    options = Options({"b": 2}, known=("a", "b", "c"))
    assert options.together("a", "b", "c") == (None, 2, None)


def test_a_secret_that_did_not_travel_is_missed_also_among_others() -> None:
    """The rest does, and a pickle has no secret."""
    options = Options({"key": "k", "secret": "hidden"}, known=("key",), secret=("secret",))
    stored = pickle.dumps(options)
    assert b"hidden" not in stored
    back = pickle.loads(stored)
    assert back.together("key") == ("k",)
    with pytest.raises(AccessDeniedError, match="'secret' is not in the pickle"):
        back.together("key", "secret")


def test_values_that_another_thread_renewed_are_tried_before_the_function_is_asked() -> None:
    """However late a request is refused that was made with the values before."""
    turns = count()
    options = Options(lambda: {"key": min(1, next(turns))}, known=("key",))
    first = options.renewals
    assert options.get("key") == 0
    assert options.renew(first)
    second = options.renewals
    assert options.get("key") == 1
    assert options.renew(first)
    assert next(turns) == 2
    assert not options.renew(second)
