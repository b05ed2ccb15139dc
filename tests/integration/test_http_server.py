"""A server over HTTP from its start to its end, and what happens to builds meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.acceptance.agent import Agent
from tests.hosts import ATTACHED, command
from tests.integration.api_processes import POLL_S
from tests.integration.http_serving import (
    Mode,
    Waits,
    WebServer,
    agent,
    cancelled,
    plain,
    refused,
    running,
    start_body,
    started,
    token_for,
    web_server,
)
from trt_agent_tools.api.attach import stop
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State

pytestmark = pytest.mark.anyio

SILENT = "Determining refit engines"
CROWD = 200


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("http").resolve()
    (folder / "root").mkdir()
    with web_server(folder / "root", folder / "state", "--no-auth") as server:
        yield server


@pytest.fixture
def open_server(shared_server: WebServer, nothing_left: None) -> WebServer:
    """A server that every test of this file uses; each ends its builds."""
    return shared_server


@pytest.fixture
def own_server(root: Path, tmp_path: Path, nothing_left: None) -> Iterator[WebServer]:
    """A server that the test ends."""
    with web_server(root, tmp_path / "state", "--no-auth") as server:
        yield server


def refusal_of(*arguments: object) -> str:
    """Run `serve` with arguments that it refuses; return what it says."""
    ran = command("serve", *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    return ran.stderr


def test_a_server_that_would_let_nobody_in_says_how_to_make_a_token(tmp_path: Path) -> None:
    said = refusal_of("--http", "--port", 0, "--state-dir", tmp_path / "state")
    assert "token add" in said


def test_everybody_is_let_in_on_a_loopback_address_alone(tmp_path: Path) -> None:
    everywhere = ("--host", "0.0.0.0", "--port", 0)  # noqa: S104  (it is refused)
    said = refusal_of("--http", "--no-auth", *everywhere, "--state-dir", tmp_path / "state")
    assert "--no-auth" in said


def test_options_of_http_without_it_are_refused(tmp_path: Path) -> None:
    assert "--http" in refusal_of("--no-auth", "--state-dir", tmp_path / "state")


def test_a_port_that_is_taken_and_a_folder_that_is_held_are_said(
    open_server: WebServer, tmp_path: Path
) -> None:
    port = httpx2.URL(open_server.url).port
    again = ("--http", "--no-auth", "--port", port)
    assert "cannot listen" in refusal_of(*again, "--state-dir", tmp_path / "another")
    assert "supervisor_running" in refusal_of(*again, "--state-dir", open_server.state)


def test_a_server_that_others_reach_says_that_nothing_is_encrypted(
    root: Path, tmp_path: Path, nothing_left: None
) -> None:
    token_for(tmp_path / "state", "caller")
    everywhere = "0.0.0.0"  # noqa: S104  (that is the question)
    with web_server(root, tmp_path / "state", "--host", everywhere) as server:
        assert server.end() == 0
    told = "".join(server.told)
    assert "not encrypted" in told
    assert "--allow-host" in told


async def test_commands_on_the_host_find_the_server_as_their_supervisor(
    own_server: WebServer,
) -> None:
    record = json.loads((own_server.state / "supervisor.json").read_text())
    assert (record["pid"], record["http"]) == (own_server.process.pid, own_server.url)
    async with plain(own_server) as http:
        build = await started(http, start_body(own_server))
        listed = await anyio.to_thread.run_sync(command, "list", "--state-dir", own_server.state)
        assert build.build_id in listed.stdout
        with pytest.raises(Refusal) as told:
            await stop(own_server.state)
        assert told.value.info.code is ErrorCode.BUILDS_LIVE
        await cancelled(http, build.build_id)
    stopped = await anyio.to_thread.run_sync(command, "stop", "--state-dir", own_server.state)
    assert stopped.returncode == 0, stopped.stderr
    assert own_server.process.returncode == 0


def test_a_newer_command_does_not_end_an_older_server_that_its_operator_runs(
    root: Path, tmp_path: Path, nothing_left: None
) -> None:
    with web_server(root, tmp_path / "state", "--no-auth", version="0.0.1") as server:
        listed = command("list", "--state-dir", server.state)
        assert listed.returncode == 0, listed.stderr
        assert server.process.poll() is None
        assert server.end() == 0


async def test_a_server_whose_journal_cannot_be_written_is_well_but_not_ready_until_it_can(
    open_server: WebServer,
) -> None:
    journal = open_server.state / "journal.sqlite3"
    aside = journal.with_name("aside")
    async with plain(open_server) as http:
        assert (await http.get("/readyz")).status_code == 200
        journal.rename(aside)
        try:
            answer = await http.post("/v1/builds", json=start_body(open_server))
            refused(answer, 503, ErrorCode.JOURNAL_UNAVAILABLE)
            refused(await http.get("/readyz"), 503, ErrorCode.JOURNAL_UNAVAILABLE)
            assert (await http.get("/healthz")).status_code == 200
        finally:
            aside.rename(journal)
        with anyio.fail_after(10):
            while (await http.get("/readyz")).status_code != 200:
                await anyio.sleep(POLL_S)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_sigterm_ends_builds_and_whoever_waits_is_still_answered(
    own_server: WebServer, mode: Mode
) -> None:
    ends: list[Snapshot] = []
    waits = Waits(expected=2)

    async def program(http: httpx2.AsyncClient, build_id: str) -> None:
        response = await http.get(f"/v1/builds/{build_id}?wait_s=45&since_seq=1000000")
        ends.append(Snapshot.model_validate_json(response.content))

    async def model(client: Agent, build_id: str) -> None:
        ends.append(
            await client.snapshot("get_progress", build_id=build_id, wait_s=45, since_seq=1000000)
        )

    async with plain(own_server) as http:
        build = await started(http, start_body(own_server))
        await running(http, build.build_id, SILENT)
        async with (
            plain(own_server, waits=waits) as waiting,
            agent(own_server, mode=mode, waits=waits) as client,
        ):
            # The client learns now what a result looks like; later there is nobody to ask.
            await client.snapshot("get_progress", build_id=build.build_id)
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(program, waiting, build.build_id)
                    tasks.start_soon(model, client, build.build_id)
                    await waits.all_sent.wait()
                    own_server.process.terminate()
    assert await anyio.to_thread.run_sync(own_server.process.wait, 20) == 0
    assert len(ends) == 2
    assert all(end.state in {State.CANCELLING, State.CANCELLED} for end in ends)
    assert {end.reason for end in ends} == {Reason.SERVER_SHUTDOWN}
    assert not (own_server.state / "supervisor.json").exists()


async def test_a_client_that_leaves_in_the_middle_of_a_wait_leaves_its_build_alone(
    open_server: WebServer,
) -> None:
    async with plain(open_server) as http:
        build = await started(http, start_body(open_server))
        for path in ("?wait_s=45&since_seq=1000000", "/events"):
            async with plain(open_server) as leaving:
                with anyio.move_on_after(0.5):
                    async with leaving.stream(
                        "GET", f"/v1/builds/{build.build_id}{path}"
                    ) as response:
                        async for _ in response.aiter_bytes():
                            pass
        async with agent(open_server) as client:
            with anyio.move_on_after(0.5):
                await client.call(
                    "get_progress", build_id=build.build_id, wait_s=45, since_seq=1000000
                )
        seen = await http.get(f"/v1/builds/{build.build_id}")
        assert not Snapshot.model_validate_json(seen.content).ended
        await cancelled(http, build.build_id)


async def test_a_server_is_well_while_two_hundred_callers_wait(open_server: WebServer) -> None:
    answers: list[int] = []
    waits = Waits(expected=CROWD)

    async def wait(http: httpx2.AsyncClient, build_id: str) -> None:
        response = await http.get(f"/v1/builds/{build_id}?wait_s=45&since_seq=1000000")
        answers.append(response.status_code)

    async with plain(open_server, waits=waits) as crowd, plain(open_server) as http:
        build = await started(http, start_body(open_server))
        await running(http, build.build_id, SILENT)
        async with anyio.create_task_group() as tasks:
            for _ in range(CROWD):
                tasks.start_soon(wait, crowd, build.build_id)
            with anyio.fail_after(30):
                await waits.all_sent.wait()
            for path in ("/healthz", "/readyz", f"/v1/builds/{build.build_id}"):
                response = await http.get(path)
                assert response.status_code == 200
            assert not answers
            await cancelled(http, build.build_id)
        assert answers == [200] * CROWD


async def test_a_reader_that_does_not_read_holds_nobody_up(open_server: WebServer) -> None:
    address = httpx2.URL(open_server.url)
    async with plain(open_server) as http:
        build = await started(http, start_body(open_server, "trickle"))
        asks = f"GET /v1/builds/{build.build_id}/events?detail=full HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n\r\n"
        async with await anyio.connect_tcp(address.host, address.port or 0) as stream:
            await stream.send(asks.encode())
            assert b" 200 " in await stream.receive(64)
            seen = await http.get(f"/v1/builds/{build.build_id}?wait_s=5")
            assert seen.status_code == 200
            assert (await cancelled(http, build.build_id)).state is State.CANCELLED


def test_the_address_is_told_in_one_line_and_settings_come_from_the_environment(
    root: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        **ATTACHED,
        "TRT_AGENT_TOOLS_HOST": "localhost",
        "TRT_AGENT_TOOLS_PORT": "0",
        "TRT_AGENT_TOOLS_STATE_DIR": str(tmp_path / "state"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "trt_agent_tools", "serve", "--http", "--no-auth", "--root", root],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stderr
        line = process.stderr.readline()
        assert " listens on http://localhost:" in line
        assert "/mcp" in line
    finally:
        process.terminate()
        printed, _ = process.communicate(timeout=20)
    assert printed == ""
    assert process.returncode == 0
