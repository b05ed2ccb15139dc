"""Resources and their updates are the same behind every transport."""

from pathlib import Path

import anyio
import pytest
from mcp_types import TextResourceContents

from tests.acceptance.agent import Agent
from tests.acceptance.conftest import Serve
from tests.acceptance.transports import EVERYWHERE, Connection, Era, Place, Transport, over
from tests.faults.conftest import Play
from tests.hosts import host_of
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio

WITHIN_S = 30.0


async def text(agent: Agent, uri: str) -> str:
    (content,) = (await agent.client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_a_build_is_read_as_a_resource(serve: Serve, play: Play) -> None:
    request = play(recording="quick")
    async with serve("--enable-replay") as agent:
        started = await agent.snapshot(
            "start_build", model=Path(request.model).name, backend="replay"
        )
        build = await agent.end(started.build_id)
        uri = f"build://{build.build_id}"
        assert uri in [resource.uri for resource in (await agent.client.list_resources()).resources]
        assert Snapshot.model_validate_json(await text(agent, uri)).state is State.SUCCEEDED
        manifest = Manifest.model_validate_json(await text(agent, f"{uri}/manifest"))
        assert build.result
        assert manifest.engine.sha256 == build.result.sha256
        assert (await text(agent, f"{uri}/log")).startswith("untrusted log of ")
        assert '"goodbye"' in (await text(agent, f"{uri}/events")).splitlines()[-1]


@over(
    *(each for each in EVERYWHERE if each.era is Era.NEWEST),
    reason="Older revisions have no subscriptions/listen.",
)
async def test_a_listener_is_told_of_the_end(serve: Serve, play: Play) -> None:
    request = play({"at": 0.07, "do": "hang_idle", "for_s": 60}, recording="quick")
    async with serve("--enable-replay") as agent:
        build = await agent.snapshot(
            "start_build", model=Path(request.model).name, backend="replay"
        )
        uri = f"build://{build.build_id}"
        with anyio.fail_after(WITHIN_S):
            async with agent.client.listen(resource_subscriptions=[uri]) as updates:
                await agent.snapshot("cancel_build", build_id=build.build_id)
                async for _ in updates:
                    if Snapshot.model_validate_json(await text(agent, uri)).ended:
                        break


@over(
    Connection(Transport.ATTACHED, Era.NEWEST),
    reason="It is about a supervisor that is a process of its own.",
)
async def test_a_listener_is_told_of_the_end_by_the_next_supervisor(
    serve: Serve, play: Play, place: Place
) -> None:
    request = play({"at": 0.07, "do": "hang_idle", "for_s": 60}, recording="quick")
    async with serve("--enable-replay") as agent:
        build = await agent.snapshot(
            "start_build", model=Path(request.model).name, backend="replay"
        )
        uri = f"build://{build.build_id}"
        with anyio.fail_after(WITHIN_S):
            async with agent.client.listen(resource_subscriptions=[uri]) as updates:
                await anext(updates)
                host_of(place.state).kill()
                async for _ in updates:
                    build = await agent.snapshot("get_progress", build_id=build.build_id)
                    if build.ended:
                        break
        assert build.state is State.LOST
