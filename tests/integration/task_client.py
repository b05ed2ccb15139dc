"""A client that takes tasks: what a host that implements the extension sends and reads."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import Field

from trt_agent_tools.mcp_server.tasks import IDENTIFIER


class CreatedTask(Result):
    """What a call that is held as a task is answered with."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class SeenTask(Result):
    """The answer of tasks/get."""

    result_type: Literal["complete"]
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    result: CallToolResult | None = None
    input_requests: dict[str, Any] = Field(default_factory=dict)


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskParams, str]):
    name_param = "taskId"


class TakesTasks(ClientExtension):
    """Declares the extension and hands a created task over as it came."""

    identifier = IDENTIFIER

    def __init__(self) -> None:
        self.created: list[CreatedTask] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._keep)]

    async def _keep(self, task: CreatedTask, _: ClaimContext) -> CallToolResult:
        self.created.append(task)
        # The client holds what is no error to the schema of the tool.
        return CallToolResult(content=[], is_error=True)


async def get_task(client: Client, task_id: str) -> SeenTask:
    """Poll once."""
    request = TaskRequest(method="tasks/get", params=TaskParams(task_id=task_id))
    return await client.session.send_request(request, SeenTask)


async def update_task(client: Client, task_id: str, answers: dict[str, Any]) -> Result:
    """Answer what a task asked."""
    params = TaskParams(task_id=task_id, input_responses=answers)
    return await client.session.send_request(
        TaskRequest(method="tasks/update", params=params), Result
    )


async def cancel_task(client: Client, task_id: str) -> Result:
    """Ask for a task's end."""
    request = TaskRequest(method="tasks/cancel", params=TaskParams(task_id=task_id))
    return await client.session.send_request(request, Result)
