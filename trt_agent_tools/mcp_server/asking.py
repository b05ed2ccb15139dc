"""Asks the client's user during a call whether a build may have more time, where the client can ask.

It is never the only way: `extend_build` does the same, and who is not asked reads the warning.
"""

from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server.mcpserver import Context
from mcp_types import ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least

from trt_agent_tools.mcp_server.questions import MoreTime, Question, open_questions
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.verdict import Action

ANSWER_S = 30.0
"""An older client's user has so long to answer; after that the call ends without one."""

_ASKS_BY_RETRY = "2026-07-28"
"""From this revision on a question is an interim result, and the call is repeated with the answer."""


def may_ask(context: Context[Any, Any]) -> bool:
    """Whether the client said that it can ask its user."""
    capabilities = context.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A call that comes again, with the answer to what was asked about a build."""

    build_id: str


def repeated(context: Context[Any, Any]) -> Repeated | None:
    """Return what a call is the repetition of; None if it is a first one.

    The state was sealed by the SDK: it is this server's, for this caller and these arguments.
    """
    return Repeated(context.request_state) if context.request_state else None


async def take_answers(context: Context[Any, Any], service: BuildService, build_id: str) -> None:
    """Do what the user answered; what is not asked any more is left.

    Raises:
        Refusal: there is no such build, or the extension is refused.
    """
    answers = context.input_responses or {}
    for question in open_questions(await service.progress(build_id)):
        answer = answers.get(question.key)
        if isinstance(answer, ElicitResult):
            await question.take(answer, service)


async def ask(
    context: Context[Any, Any],
    service: BuildService,
    snapshot: Snapshot,
    *,
    since_seq: int,
    detail: Detail,
) -> Snapshot | InputRequiredResult:
    """Ask about limits that came near after `since_seq`; return the build as it stands after the answer.

    Without a question, or a client that can ask, `snapshot` is returned as it is.

    Raises:
        Refusal: the extension is refused.
    """
    if not may_ask(context) or not open_questions(snapshot):
        return snapshot
    tree = await service.progress(snapshot.build_id, detail=Detail.TREE)
    came = {
        verdict.rule
        for verdict in tree.verdicts or ()
        if verdict.action is Action.WARNED and verdict.seq >= since_seq
    }
    questions = [question for question in open_questions(tree) if question.rule in came]
    if not questions:
        return snapshot
    if is_version_at_least(context.protocol_version or "", _ASKS_BY_RETRY):
        return InputRequiredResult(
            input_requests={question.key: question.request() for question in questions},
            request_state=snapshot.build_id,
        )
    for question in questions:
        await _ask_now(context, service, question)
    return await service.progress(snapshot.build_id, detail=detail)


async def _ask_now(context: Context[Any, Any], service: BuildService, question: Question) -> None:
    with anyio.move_on_after(ANSWER_S):
        answered = await context.elicit(question.message, MoreTime)
        content = answered.data.model_dump() if answered.action == "accept" else None
        await question.take(ElicitResult(action=answered.action, content=content), service)
