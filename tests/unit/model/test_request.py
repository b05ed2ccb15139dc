"""Requests and orders: what a path and a label may be, and that an order says what it is."""

import pytest
from pydantic import ValidationError

from trt_agent_tools.model.request import FIRST_ORDER, CancelOrder, ProbeOrder, StartRequest


@pytest.mark.parametrize("path", ["", "a\0b", "a" * 4097, None, 5, "\udcff.onnx"])
def test_a_path_is_text_without_nul_of_a_length_that_the_system_takes(path: object) -> None:
    with pytest.raises(ValidationError):
        StartRequest.model_validate({"model": path})


@pytest.mark.parametrize("label", ["", "two\nlines", "\x1b[31m", "x" * 121, "\x7f"])
def test_a_label_is_short_and_on_one_line(label: str) -> None:
    with pytest.raises(ValidationError):
        StartRequest.model_validate({"model": "m.onnx", "label": label})


@pytest.mark.parametrize(
    "limits",
    [
        {"x" * 41: "1m"},
        {"build_time": "x" * 41},
        {"phase_time": {"x" * 1001: "1m"}},
        {"phase_time": {"Parsing": "x" * 41}},
        {"phase_time": {f"phase {number}": "1m" for number in range(65)}},
    ],
)
def test_names_values_and_patterns_of_limits_are_bounded(limits: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="at most"):
        StartRequest.model_validate({"model": "m.onnx", "limits": limits})


def test_an_unknown_argument_of_a_request_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        StartRequest.model_validate({"model": "m.onnx", "prioritise": True})


def test_the_first_order_is_told_apart_by_its_type() -> None:
    probe = ProbeOrder(protocol=1, backend="replay")
    assert FIRST_ORDER.validate_json(probe.model_dump_json()) == probe
    for line in ('{"protocol": 1, "backend": "replay"}', '{"type": "probed"}', "[]", "", "\xff"):
        with pytest.raises(ValidationError):
            FIRST_ORDER.validate_json(line)


def test_a_later_order_of_another_type_is_no_cancel() -> None:
    with pytest.raises(ValidationError):
        CancelOrder.model_validate_json('{"type": "extend", "reason": "more time"}')
