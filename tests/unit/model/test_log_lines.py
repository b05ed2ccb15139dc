"""One rule for a line of the log: its severity where it has one, and nothing lost of the rest."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.log_lines import at_least, split_line


@pytest.mark.parametrize(
    ("line", "severity", "text"),
    [
        ("[TRT] [W] slow", Severity.WARNING, "slow"),
        ("[11/29/2026-12:33:53] [TRT] [E] Error Code 4", Severity.ERROR, "Error Code 4"),
        ("[TRT] [F] bug", Severity.INTERNAL_ERROR, "bug"),
        ("[TRT] [I] ", Severity.INFO, ""),
        ("[TRT] [V]x", Severity.VERBOSE, "x"),
        ("[TRT] [X] other", None, "[TRT] [X] other"),
        ("terminate called", None, "terminate called"),
        ("said [TRT] [E] later", None, "said [TRT] [E] later"),
        ("", None, ""),
    ],
)
def test_a_line_is_split_as_the_library_logs_it(
    line: str, severity: Severity | None, text: str
) -> None:
    assert split_line(line) == (severity, text)


@given(st.text())
def test_any_line_ends_with_the_text_that_is_told_of_it(line: str) -> None:
    severity, text = split_line(line)
    assert line.endswith(text)
    assert severity is not None or text == line


def test_severities_are_ordered_from_the_worst() -> None:
    ranked = list(Severity)
    assert ranked[0] is Severity.INTERNAL_ERROR
    for (a, left), (b, right) in itertools.product(enumerate(ranked), repeat=2):
        assert at_least(left, right) is (a <= b)


def test_what_bypassed_the_logger_is_never_filtered_away() -> None:
    assert all(at_least(None, minimum) for minimum in Severity)
