"""A body that would hold the server up is refused before anything parses it; honest ones fit."""

import json

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from trt_agent_tools.api.answers import answer
from trt_agent_tools.api.messages import ErrorAnswer, Health, StartBody
from trt_agent_tools.api.strict import MAX_BODY_BYTES, MAX_KEYS, BodyLimit
from trt_agent_tools.model.errors import ErrorCode

pytestmark = pytest.mark.anyio


def largest_honest_request() -> dict[str, object]:
    """64 profiles, the most there may be, of 20 inputs each."""
    shapes = {"min": [1, 3, 224, 224], "opt": [8, 3, 224, 224], "max": [16, 3, 1024, 1024]}
    profiles = [{f"input_{number}": shapes for number in range(20)} for _ in range(64)]
    return {"request": {"model": "m.onnx", "options": {"profiles": profiles}}}


async def sent(body: bytes) -> tuple[httpx2.Response, list[str]]:
    """Send a body through the limit; the paths are those that the application was asked for."""
    asked: list[str] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await answer(Health())(scope, receive, send)

    transport = httpx2.ASGITransport(app=BodyLimit(application))
    async with httpx2.AsyncClient(transport=transport, base_url="http://s") as http:
        return await http.post("/v1/builds", content=body), asked


async def test_a_request_with_as_many_profiles_as_there_may_be_is_let_through() -> None:
    body = json.dumps(largest_honest_request()).encode()
    response, asked = await sent(body)
    assert response.status_code == 200
    assert asked == ["/v1/builds"]
    assert len(StartBody.model_validate_json(body).request.options.profiles) == 64


async def test_a_body_of_more_keys_than_any_request_has_reaches_no_parser() -> None:
    body = json.dumps(dict.fromkeys(map(str, range(MAX_KEYS + 1)), 1)).encode()
    assert len(body) < MAX_BODY_BYTES
    response, asked = await sent(body)
    assert response.status_code == 413
    error = ErrorAnswer.model_validate_json(response.content).error
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "keys" in error.message
    assert asked == []
