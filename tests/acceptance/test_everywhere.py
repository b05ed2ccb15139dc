"""The server is the same behind every transport and in both eras: the same answers, the same refusals."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import REQUEST_TIMEOUT, CallToolResult, TextContent

from tests.acceptance.agent import Agent
from tests.acceptance.conftest import Serve, ServeMany
from tests.acceptance.transports import (
    MANY_CLIENTS,
    Connection,
    Era,
    Place,
    Transport,
    in_memory,
    over,
)
from tests.faults.conftest import GRACES, Action, Play
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import BuildList
from trt_agent_tools.model.states import Reason, State

pytestmark = pytest.mark.anyio

GIVES_UP_S = 0.5
WAIT_S = 40.0
"""Longer than a test waits for an answer that is to come at once."""
ENDS_S = 15.0
MEGABYTE = 1_000_000
POLICY = f"""{GRACES}
[rules]
build_time = {{ limit = "1h", ceiling = "2h" }}
[session]
gpu_time = "1h"
extension_total = "1h"
"""
"""Ends within a second what is deaf; nothing of it depends on how fast the machine is."""


@pytest.fixture
def policy(tmp_path: Path) -> tuple[str, str]:
    """Return the options of a server under `POLICY`."""
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    return ("--policy", str(file))


def replay(play: Play, *, lasts_s: float = 0.0) -> dict[str, object]:
    """Return the arguments of a build that is over at once, or sits in its parser for a while."""
    pause: Action = {"at": 0.07, "do": "hang_idle", "for_s": lasts_s}
    request = play(*([pause] if lasts_s else []), recording="quick")
    return {"model": Path(request.model).name, "backend": "replay"}


async def builds(agent: Agent, **arguments: object) -> list[str]:
    listed = await agent.call("list_builds", **arguments)
    return [b.build_id for b in BuildList.model_validate(listed.structured_content).builds]


def shape(value: object, place: str = "") -> set[str]:
    """Return every place in a structured answer and the type that is there; places in lists are one."""
    if isinstance(value, dict):
        return {
            told for name, inner in value.items() for told in shape(inner, f"{place}.{name}")
        } or {f"{place}: empty"}
    if isinstance(value, list):
        return {told for inner in value for told in shape(inner, f"{place}[]")} or {f"{place}[]"}
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {f"{place}: {'number' if number else type(value).__name__}"}


async def a_life(agent: Agent, build: dict[str, object]) -> dict[str, set[str]]:
    """Ask for everything that a client can ask about one build; return the shapes of the answers."""
    answers: dict[str, CallToolResult] = {}
    answers["session"] = await agent.call("open_session", gpu_time="10m", label="mine")
    session = Session.model_validate(answers["session"].structured_content)
    of_session = {"session_id": session.session_id}
    started = await agent.snapshot(
        "start_build", **build, **of_session, label="first", idempotency_key="k"
    )
    await agent.end(started.build_id)
    one = {"build_id": started.build_id}
    extension = {"limit": "build_time", "by": "1m", "reason": "too late"}
    answers["repeated"] = await agent.call(
        "start_build", **build, **of_session, label="first", idempotency_key="k"
    )
    for detail in ("summary", "tree", "full"):
        answers[detail] = await agent.call("get_progress", **one, detail=detail)
    answers["cancelled too late"] = await agent.call("cancel_build", **one)
    answers["extended too late"] = await agent.call("extend_build", **one, **extension)
    answers["listed"] = await agent.call("list_builds", **of_session, state="succeeded")
    answers["log"] = await agent.call("get_log", **one, tail=3)
    answers["spent"] = await agent.call("get_session", **of_session)
    answers["own session"] = await agent.call("get_session")
    answers["unknown"] = await agent.call("get_progress", build_id="b_0")
    return {name: shape(answer.model_dump(exclude={"meta"})) for name, answer in answers.items()}


async def test_every_answer_has_the_shape_that_it_has_in_memory(
    serve: Serve, root: Path, play: Play, tmp_path: Path, policy: tuple[str, str]
) -> None:
    build = replay(play)
    options = ("--enable-replay", *policy)
    reference = Place(root, tmp_path / "reference")
    async with in_memory(reference, Era.NEWEST, *options) as connect, connect() as agent:
        expected = await a_life(agent, build)
    for output in root.glob("*.engine*"):
        output.unlink()
    async with serve(*options) as agent:
        answers = await a_life(agent, build)
    assert answers.keys() == expected.keys()
    for name, answer in expected.items():
        assert answers[name] ^ answer == set(), name


async def test_a_build_that_runs_takes_orders(
    serve: Serve, play: Play, policy: tuple[str, str]
) -> None:
    async with serve("--enable-replay", *policy) as agent:
        started = await agent.snapshot("start_build", **replay(play, lasts_s=WAIT_S))
        one = {"build_id": started.build_id}
        running = await agent.until(started.build_id, "Parsing")
        too_much = await agent.refusal(
            "extend_build", **one, limit="build_time", by="3h", reason="for ever"
        )
        extended = await agent.snapshot(
            "extend_build", **one, limit="build_time", by="5m", reason="nearly there"
        )
        cancelled = await agent.snapshot("cancel_build", **one, reason="enough", wait_s=ENDS_S)
        last = await agent.snapshot("get_progress", **one, detail="full")
        log = await agent.call("get_log", **one)
    assert running.state in {State.STARTING, State.BUILDING}
    assert too_much.code is ErrorCode.ABOVE_CEILING
    assert not extended.ended
    assert (cancelled.state, cancelled.reason) == (State.CANCELLED, Reason.USER_REQUEST)
    assert last.notes
    assert any("enough" in note for note in last.notes)
    assert not log.is_error


async def test_a_client_that_gives_up_waiting_leaves_its_builds_alone(
    serve: Serve, play: Play
) -> None:
    async with serve("--enable-replay") as agent:
        first = await agent.snapshot("start_build", **replay(play, lasts_s=6 * GIVES_UP_S))
        running = await agent.until(first.build_id, "Parsing")
        waiting = {"build_id": first.build_id, "wait_s": WAIT_S, "since_seq": running.seq + 1000}
        await gives_up(agent, "get_progress", waiting)
        # Nothing happens to a build that waits for its device, so this start waits with it.
        await gives_up(agent, "start_build", {**replay(play), "wait_s": WAIT_S})
        second, _ = await builds(agent)
        for build_id in (first.build_id, second):
            ended = await agent.end(build_id, within_s=ENDS_S)
            assert ended.state is State.SUCCEEDED, ended.summary


async def gives_up(agent: Agent, tool: str, arguments: dict[str, object]) -> None:
    """Make a call whose client waits for `GIVES_UP_S` alone; the next one is answered at once."""
    with pytest.raises(MCPError) as error:
        await agent.client.call_tool(tool, arguments, read_timeout_seconds=GIVES_UP_S)
    assert error.value.code == REQUEST_TIMEOUT
    with anyio.fail_after(ENDS_S):
        await agent.call("list_builds")


async def test_what_cannot_be_called_is_refused_and_the_next_call_works(
    serve: Serve,
) -> None:
    async with serve() as agent:
        unknown = await agent.client.call_tool("start_bild", {"model": "a.onnx"})
        assert unknown.is_error
        assert isinstance(unknown.content[0], TextContent)
        assert "start_bild" in unknown.content[0].text
        for arguments, named in (
            ({"model": "a.onnx", "priority": 1}, "priority"),
            ({"model": ["a.onnx"]}, "model"),
            ({"model": "a.onnx", "wait_s": "1"}, "wait_s"),
            ({"model": "a.onnx", "options": "fast"}, "options"),
            ({}, "model"),
            ({"model": "a.onnx", "label": "x" * 100_000}, "label"),
        ):
            error = await agent.refusal("start_build", **arguments)
            assert error.code is ErrorCode.INVALID_ARGUMENT, named
            assert named in error.message
            assert len(error.message) < 2000, "a refusal does not send back what it refuses"
        assert await builds(agent) == []


async def test_a_message_of_five_megabytes_starts_nothing_and_the_next_call_works(
    serve: Serve, connection: Connection
) -> None:
    huge = {"model": "a.onnx", "label": "x" * (5 * MEGABYTE)}
    async with serve() as agent:
        if connection.transport is Transport.HTTP:
            # This transport bounds its messages, so no tool has seen it.
            await refuses(partial(agent.client.call_tool, "start_build", huge))
        else:
            assert (await agent.refusal("start_build", **huge)).code is ErrorCode.INVALID_ARGUMENT
        assert await builds(agent) == []


async def test_unknown_resources_and_prompts_are_refused_and_the_next_call_works(
    serve: Serve,
) -> None:
    async with serve() as agent:
        for uri in ("build://b_0000000000000000", "file:///etc/passwd", "nothing://at/all"):
            await refuses(partial(agent.client.read_resource, uri))
        await refuses(partial(agent.client.get_prompt, "no_such_prompt"))
        assert await builds(agent) == []


async def refuses(call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(MCPError) as error:
        await call()
    assert error.value.code != REQUEST_TIMEOUT
    assert error.value.message


@over(*MANY_CLIENTS, reason="A server that its client starts ends with it.")
async def test_a_client_that_vanishes_in_a_wait_leaves_its_build_to_the_others(
    serve_many: ServeMany, play: Play
) -> None:
    async with serve_many("--enable-replay") as connect, connect() as other:
        started: list[str] = []
        async with anyio.create_task_group() as leaving, connect() as agent:
            snapshot = await agent.snapshot("start_build", **replay(play, lasts_s=1.0))
            started.append(snapshot.build_id)
            waiting = {"build_id": snapshot.build_id, "wait_s": WAIT_S, "since_seq": 1000}
            leaving.start_soon(lambda: agent.call("get_progress", **waiting))
            await other.until(snapshot.build_id, "Parsing")
            leaving.cancel_scope.cancel()
        assert await builds(other) == started
        ended = await other.end(started[0], within_s=ENDS_S)
    assert ended.state is State.SUCCEEDED, ended.summary
