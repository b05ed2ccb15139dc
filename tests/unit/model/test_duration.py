"""Durations: what a person writes is understood, what makes no sense is refused in words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from trt_agent_tools.model.duration import MAX_S, Duration, format_duration, parse_duration


class Holder(BaseModel):
    wait: Duration


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text("0123456789.mshd -+e", max_size=20),
    st.binary(),
    st.lists(st.integers(), max_size=2),
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        (" 2D ", 172_800),
        ("1m1ms", 60.001),
        (12, 12),
        (0.25, 0.25),
        (0, 0),
        (MAX_S, MAX_S),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    ["", "15", "m", "-5s", "1h 30m", "5 minutes", "1,5h", "1e3s", "5s!", True, None, b"5s", [5]],
)
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="15m"):
        parse_duration(written)


@pytest.mark.parametrize(
    "written", [-1, -0.001, math.inf, -math.inf, math.nan, 10**400, -(10**400)]
)
def test_negative_infinite_and_absurd_numbers_are_refused_not_crashed_on(written: object) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        parse_duration(written)


def test_a_text_too_long_for_a_duration_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValueError, match="15m") as refused:
        parse_duration("9" * 100_000 + "s")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("written", [MAX_S + 1, "367d", "9999999h"])
def test_more_than_a_year_is_taken_for_a_mistake(written: object) -> None:
    with pytest.raises(ValueError, match="366 days"):
        parse_duration(written)


@given(anything)
def test_any_value_is_a_sane_number_of_seconds_or_a_value_error(value: object) -> None:
    try:
        seconds = parse_duration(value)
    except ValueError:
        return
    assert 0 <= seconds <= MAX_S


@given(st.integers(0, 365), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    written = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration(written) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@given(st.floats(0, MAX_S))
def test_what_is_shown_can_be_typed_again_and_is_close(seconds: float) -> None:
    shown = format_duration(seconds)
    # To the tenth of a second, the second, the minute.
    error = 0.051 if seconds < 59 else 0.51 if seconds < 3599 else 61
    assert abs(parse_duration(shown) - seconds) <= error


@given(st.one_of(st.floats(0, MAX_S), st.floats(59, 61), st.floats(3598, 3602)))
def test_no_part_that_is_shown_is_sixty_or_more(seconds: float) -> None:
    shown = format_duration(seconds)
    assert "60" not in shown.split("h")[-1], shown


def test_a_duration_in_a_model_is_held_in_seconds_and_described_both_ways() -> None:
    assert Holder.model_validate({"wait": "1m30s"}).wait == 90.0
    with pytest.raises(ValidationError, match="no duration"):
        Holder.model_validate({"wait": "soon"})
    choices = Holder.model_json_schema()["properties"]["wait"]["anyOf"]
    assert [choice["type"] for choice in choices] == ["number", "string"]
