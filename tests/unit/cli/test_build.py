from signal import Signals
from typing import cast

import pytest
import typer

from trt_agent_tools.cli.build import Brake, exit_code
from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.display import Display
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State


class Recorder:
    """Takes the orders that a build service would get, and what a person would be told."""

    def __init__(self) -> None:
        self.orders: list[bool] = []
        self.said: list[str] = []

    async def cancel(
        self, build_id: str, *, reason: str | None = None, at_once: bool = False
    ) -> None:
        assert (build_id, bool(reason)) == ("b1", True)
        self.orders.append(at_once)

    def say(self, text: str) -> None:
        self.said.append(text)


def ended(state: State, reason: Reason | None = None) -> Snapshot:
    return Snapshot(build_id="b1", seq=1, state=state, reason=reason, summary="", elapsed_s=1.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_ctrl_c_asks_then_kills_then_leaves() -> None:
    recorder = Recorder()
    brake = Brake(cast("BuildService", recorder), cast("Display", recorder))

    assert await brake.pull(Signals.SIGINT, "b1")
    assert recorder.orders == [False]
    assert await brake.pull(Signals.SIGINT, "b1")
    assert recorder.orders == [False, True]
    assert not await brake.pull(Signals.SIGINT, "b1")
    assert recorder.orders == [False, True]
    assert len(recorder.said) == 2


@pytest.mark.anyio
async def test_a_repeated_sigterm_does_not_kill() -> None:
    recorder = Recorder()
    brake = Brake(cast("BuildService", recorder), cast("Display", recorder))

    for _ in range(3):
        assert await brake.pull(Signals.SIGTERM, "b1")

    assert recorder.orders == [False]
    assert brake.first is Signals.SIGTERM


@pytest.mark.parametrize(
    ("final", "asked", "status"),
    [
        (ended(State.SUCCEEDED), None, 0),
        (ended(State.SUCCEEDED), Signals.SIGINT, 0),
        (ended(State.FAILED, Reason.BUILDER_ERROR), None, 1),
        (ended(State.FAILED, Reason.BUILDER_ERROR), Signals.SIGINT, 1),
        (ended(State.CANCELLED, Reason.BUILD_TIME), None, 3),
        (ended(State.CANCELLED, Reason.USER_REQUEST), Signals.SIGHUP, 129),
        (ended(State.CANCELLED, Reason.USER_REQUEST), Signals.SIGINT, 130),
        (ended(State.CANCELLED, Reason.USER_REQUEST), Signals.SIGTERM, 143),
        (ended(State.CANCELLED, Reason.USER_REQUEST), None, 130),
        (ended(State.CANCELLING, Reason.USER_REQUEST), Signals.SIGINT, 130),
        (ended(State.LOST), None, 4),
    ],
)
def test_the_status_tells_how_the_build_ended(
    final: Snapshot, asked: Signals | None, status: int
) -> None:
    assert exit_code(final, asked) == status


def test_a_fault_of_the_program_is_status_4_with_a_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fault() -> int:
        raise ZeroDivisionError("a fault")

    with pytest.raises(typer.Exit) as exited:
        exit_with(fault)

    assert exited.value.exit_code == ExitCode.INTERNAL
    assert "ZeroDivisionError: a fault" in capsys.readouterr().err


def test_a_refusal_is_status_2_with_its_hint_and_no_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> int:
        raise Refusal(ErrorCode.UNKNOWN_POLICY, "no such policy", "name another")

    with pytest.raises(typer.Exit) as exited:
        exit_with(refuse)

    assert exited.value.exit_code == ExitCode.USAGE
    assert capsys.readouterr().err == "error: unknown_policy: no such policy\nhint: name another\n"
