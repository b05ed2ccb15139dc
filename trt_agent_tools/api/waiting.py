"""Answers that take a while, for as long as somebody waits for them."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

import anyio
from fastapi import Request, Response
from pydantic import BaseModel

from trt_agent_tools.api.answers import answer
from trt_agent_tools.model.errors import Refusal

T = TypeVar("T", bound=BaseModel)


async def waited(
    request: Request,
    wait_s: float,
    call: Callable[[], Awaitable[T]],
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """Answer with what `call` returns; with a `wait_s` it is cancelled when the caller is gone."""
    if not wait_s:
        return answer(await call(), status)
    answered: Response | None = None
    refused: Refusal | None = None
    async with anyio.create_task_group() as tasks:

        async def leave_with_the_caller() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave_with_the_caller)
        try:
            answered = answer(await call(), status)
        except Refusal as refusal:
            # Raised inside, the task group would wrap it.
            refused = refusal
        tasks.cancel_scope.cancel()
    if refused:
        raise refused
    return answered or Response(status_code=HTTPStatus.NO_CONTENT)
