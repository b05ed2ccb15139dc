"""Why the builder gave up, read from its own lines: the first that names a known kind decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.worker.failure import build_failure

PROFILE = (
    "IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error (Network has dynamic or shape "
    "inputs, but no optimization profile has been defined.)"
)
WORKSPACE = (
    "Error Code 10: Internal Error (insufficient memory on requested size: 5 > workspace limit)"
)
MEMORY = "Error Code 1: Cuda Runtime (out of memory)"
USAGE = "Error Code 6: API Usage Error (the flag is not supported)"
OTHER = (
    "Error Code 10: Internal Error (Could not find any implementation for node {ForeignNode[a]}.)"
)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([PROFILE], ErrorCode.MISSING_PROFILE),
        ([WORKSPACE], ErrorCode.OUT_OF_MEMORY),
        ([MEMORY], ErrorCode.OUT_OF_MEMORY),
        (["std::bad_alloc"], ErrorCode.OUT_OF_MEMORY),
        ([USAGE], ErrorCode.UNSUPPORTED_OPTION),
        ([OTHER], ErrorCode.BUILDER_ERROR),
        ([], ErrorCode.BUILDER_ERROR),
        # What came first led to what came after it.
        ([OTHER, MEMORY, USAGE], ErrorCode.OUT_OF_MEMORY),
        ([USAGE, MEMORY], ErrorCode.UNSUPPORTED_OPTION),
        ([MEMORY, PROFILE], ErrorCode.OUT_OF_MEMORY),
    ],
)
def test_the_first_known_kind_decides(lines: list[str], code: ErrorCode) -> None:
    info = build_failure(lines).info
    assert info.code is code
    assert info.hint
    assert info.details["errors"] == lines


def test_a_known_kind_is_told_by_its_own_line_and_an_unknown_one_by_the_last() -> None:
    assert build_failure([OTHER, MEMORY, OTHER]).info.message.endswith(MEMORY)
    assert build_failure(["first", OTHER]).info.message.endswith(OTHER)
    assert "no error" in build_failure([]).info.message


def test_too_little_workspace_is_told_apart_from_too_little_memory() -> None:
    assert "WORKSPACE" in build_failure([WORKSPACE]).info.hint
    assert "WORKSPACE" not in build_failure([MEMORY]).info.hint


@given(st.lists(st.text(max_size=50), max_size=30))
def test_any_lines_make_a_fault_with_the_last_of_them(lines: list[str]) -> None:
    info = build_failure(lines).info
    assert info.details["errors"] == lines[-10:]
    assert info.hint
