"""Numbers of every encoding: all that fits comes back to the bit, the rest is refused in words."""

from __future__ import annotations

import enum
import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.format.mds.making import key, round_trip

from streaming_core._format._mds import mds_encodings

INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
WIDE = st.integers(-(2**70), 2**70)


def encode(encoding: str, value: Any) -> bytes:
    """Return the bytes of one value."""
    return mds_encodings[encoding]().encode(value)


def refused(encoding: str, value: Any, error: type[Exception]) -> str:
    """Return the message with which `value` is refused."""
    with pytest.raises(error) as caught:
        encode(encoding, value)
    return str(caught.value)


@pytest.mark.parametrize("name", INTS)
@given(data=st.data())
def test_whole_numbers_come_back_where_they_fit(name: str, data: st.DataObject) -> None:
    """A number in the type's range comes back as that type; any other is an OverflowError."""
    info = np.iinfo(name)
    border = st.sampled_from([0, int(info.min), int(info.max)]).flatmap(
        lambda edge: st.integers(edge - 2, edge + 2)
    )
    value = data.draw(border | WIDE)
    if info.min <= value <= info.max:
        assert key(round_trip(name, value)) == key(np.dtype(name).type(value))
    else:
        message = refused(name, value, OverflowError)
        assert f"[{info.min}, {info.max}]" in message
        assert str(value) in message


@pytest.mark.parametrize("name", INTS)
def test_every_form_of_a_whole_number_is_the_same(name: str) -> None:
    """Python, numpy, bool, whole floats and arrays of one element are one number."""
    forms = [7, 7.0, np.int64(7), np.uint8(7), np.float32(7), np.array([7]), np.array([[7.0]])]
    assert {encode(name, form) for form in forms} == {encode(name, 7)}
    assert {encode(name, form) for form in (True, np.True_, np.array(True))} == {encode(name, 1)}


@pytest.mark.parametrize("name", ["int", "str_int", *INTS])
@pytest.mark.parametrize(
    "value",
    [
        *(1.5, math.inf, math.nan, np.float16(0.5), np.longdouble(2**53) + np.longdouble(0.5)),
        *("7", None, 1j, Decimal(7), np.array([1, 2]), np.zeros(0), np.array([1.5]), [7], {}),
    ],
    ids=repr,
)
def test_what_is_no_whole_number_is_refused(name: str, value: Any) -> None:
    """Nothing is rounded or guessed; the message says what was wanted and what came."""
    message = refused(name, value, TypeError)
    assert message.startswith("wanted a whole number, came ")


@given(WIDE)
@example(2**63 - 1)
@example(-(2**63))
@example(2**63)
def test_int_columns_hold_64_bits(value: int) -> None:
    """A Python int of 64 bits comes back as a Python int; a larger one names the way out."""
    if -(2**63) <= value < 2**63:
        assert key(round_trip("int", value)) == key(value)
        assert encode("int", value) == struct.pack("<q", value)
    else:
        assert "str_int" in refused("int", value, OverflowError)


@pytest.mark.parametrize("value", [np.int64(-5), np.uint64(5), True, np.True_, 5.0, np.array([5])])
def test_int_columns_take_every_whole_number(value: Any) -> None:
    """Numpy's integers need no conversion by hand."""
    assert key(round_trip("int", value)) == key(int(np.asarray(value).item()))


@given(st.integers() | st.integers(0, 4000).map(lambda digits: -(10**digits)))
def test_numbers_as_text_have_any_size(value: int) -> None:
    """A whole number as text comes back, however long."""
    assert key(round_trip("str_int", value)) == key(value)


class Color(enum.IntEnum):
    """Some names for numbers."""

    RED = 3


@pytest.mark.parametrize("value", [True, np.True_, np.int8(1), 1.0, Color(3)])
def test_numbers_as_text_are_digits(value: Any) -> None:
    """A bool is written as its number: `True` could not be read back."""
    assert encode("str_int", value) == str(int(value)).encode()
    assert key(round_trip("str_int", value)) == key(int(value))


def test_numbers_too_long_for_python_are_refused() -> None:
    """More digits than Python converts are an error at once, not in front of the reader."""
    with pytest.raises(ValueError, match="4300 digits"):
        encode("str_int", 10**5000)
    assert "int of 16610 bits" in refused("int", 10**5000, OverflowError)
    assert "int of 16610 bits" in refused("float64", 10**5000, OverflowError)


# --- floats ---------------------------------------------------------------------------------------

BITS = {"float16": 16, "float32": 32, "float64": 64}


@pytest.mark.parametrize("name", FLOATS)
@given(data=st.data())
def test_every_float_comes_back_to_the_bit(name: str, data: st.DataObject) -> None:
    """All bit patterns are kept: NaN with any payload, -0.0, subnormals."""
    bits = data.draw(st.integers(0, 2 ** BITS[name] - 1))
    value = np.frombuffer(bits.to_bytes(BITS[name] // 8, "little"), name)[0]
    assert key(round_trip(name, value)) == key(value)
    assert encode(name, np.array([[value]])) == value.tobytes()


@pytest.mark.parametrize("name", FLOATS)
@given(value=st.floats() | st.integers(-(2**1100), 2**1100))
@example(2**11 + 1)
@example(2**24 + 1)
@example(2**53 + 1)
@example(65519.99)
@example(65520)
@example(3.5e38)
@example(-1e309)
def test_no_finite_number_becomes_infinite(name: str, value: Any) -> None:
    """A number is stored as the nearest of the type, and a whole one only if that is the same."""
    try:
        with np.errstate(over="ignore"):
            nearest = np.dtype(name).type(value)
    except OverflowError:
        nearest = np.dtype(name).type(math.inf)
    if np.isinf(nearest) and not (isinstance(value, float) and math.isinf(value)):
        assert refused(name, value, OverflowError).startswith(f"wanted {name} up to ")
    elif isinstance(value, int) and int(nearest) != value:
        assert f"{name} holds exactly" in refused(name, value, OverflowError)
    else:
        assert encode(name, value) == nearest.tobytes()


@pytest.mark.parametrize("name", [*FLOATS, "str_float"])
@pytest.mark.parametrize(
    "value",
    [0.5, np.float64(0.5), np.float16(0.5), np.longdouble(0.5), Fraction(1, 2), Decimal("0.5")],
)
def test_every_form_of_a_real_number_is_the_same(name: str, value: Any) -> None:
    """Whatever converts to a float counts as one."""
    assert encode(name, value) == encode(name, 0.5)


class _Tensor:
    def __repr__(self) -> str:
        return "_Tensor()"

    def __float__(self) -> float:
        msg = "a Tensor with 3 elements cannot be converted to Scalar"
        raise RuntimeError(msg)


@pytest.mark.parametrize("name", [*FLOATS, "str_float"])
@pytest.mark.parametrize(
    "value",
    ["0.5", None, 1j, np.complex64(1), np.zeros(2), np.zeros(0), [0.5], _Tensor()],
    ids=repr,
)
def test_what_is_no_real_number_is_refused(name: str, value: Any) -> None:
    """Text, complex numbers and several numbers are refused; the message says what came."""
    assert refused(name, value, TypeError).startswith(
        f"wanted a real number, came {type(value).__name__}"
    )


@given(st.floats())
def test_floats_as_text_come_back(value: float) -> None:
    """The shortest text of a float gives the float back; NaN keeps being one."""
    came = round_trip("str_float", value)
    assert encode("str_float", value) == str(value).encode()
    assert math.isnan(came) if math.isnan(value) else key(came) == key(value)


@given(st.decimals(allow_nan=True, allow_infinity=True))
@example(Decimal("sNaN123"))
@example(Decimal("-0E+999999"))
def test_decimals_come_back_with_their_exponent(value: Decimal) -> None:
    """A Decimal keeps digits, exponent and sign: 0.10 is not 0.1."""
    assert key(round_trip("str_decimal", value)) == key(value)


@pytest.mark.parametrize("value", [1, 1.5, "1.5", None, np.float64(1)], ids=repr)
def test_what_is_no_decimal_is_refused(value: Any) -> None:
    """Only a Decimal says how many digits are meant."""
    assert "wanted a decimal.Decimal, came " in refused("str_decimal", value, TypeError)
