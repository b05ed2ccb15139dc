import pytest
from pydantic import ValidationError

from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.trace import traceparent_or_none

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

MALFORMED = [
    "",
    "00",
    GIVEN.upper(),
    GIVEN + "-more",
    GIVEN + "\n00",
    GIVEN.replace("00-", "01-", 1),
    GIVEN.replace("-b7", "-g7"),
    "00-" + "0" * 32 + "-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
]


def test_a_callers_span_is_taken_as_it_is() -> None:
    assert traceparent_or_none(GIVEN) == GIVEN
    assert traceparent_or_none(f" {GIVEN} ") == GIVEN
    assert StartRequest(model="m.onnx", traceparent=GIVEN).traceparent == GIVEN


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_header_says_nothing_and_a_malformed_argument_is_refused(text: str) -> None:
    assert traceparent_or_none(text) is None
    with pytest.raises(ValidationError):
        StartRequest(model="m.onnx", traceparent=text)


@pytest.mark.parametrize("other", [None, 1, ["00"], {"traceparent": GIVEN}])
def test_what_is_no_text_says_nothing(other: object) -> None:
    assert traceparent_or_none(other) is None


def test_a_request_that_comes_again_in_another_trace_asks_the_same() -> None:
    first = StartRequest(model="m.onnx", idempotency_key="k", traceparent=GIVEN)
    assert first.asks_the_same(StartRequest(model="m.onnx", idempotency_key="k"))
    assert StartRequest(model="m.onnx", idempotency_key="k").asks_the_same(first)
    assert not first.asks_the_same(first.model_copy(update={"model": "n.onnx"}))
