from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.api.event_format import KEEP_ALIVE, encode_error, encode_snapshot, read_events
from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.model.error_guide import guided
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio

LINES = "one\r\ntwo\n\nthree\u2028four: \x85"
SNAPSHOT = Snapshot(
    build_id="b", seq=7, state=State.BUILDING, summary=LINES, elapsed_s=1.5, model="/m/ü.onnx"
)
FAILURE = ErrorInfo(ErrorCode.TOO_LATE, "it is over\nand out", "", {"left_s": None, "n": ["a"]})


async def pieces(data: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts})
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        yield data[start:end]


@given(st.lists(st.integers(0, 10_000), max_size=12))
async def test_events_are_read_as_they_were_written_however_the_stream_is_cut(
    cuts: list[int],
) -> None:
    data = encode_snapshot(SNAPSHOT) + KEEP_ALIVE + encode_error(FAILURE) + b"event: half"
    read = [event async for event in read_events(pieces(data, cuts))]
    assert [name for name, _ in read] == ["snapshot", "error"]
    assert Snapshot.model_validate_json(read[0][1]) == SNAPSHOT
    assert ErrorAnswer.model_validate_json(read[1][1]).error == guided(FAILURE)
