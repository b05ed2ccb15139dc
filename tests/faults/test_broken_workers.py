"""Workers that die, babble or break the protocol: the build says so truly, and the next one runs."""

from pathlib import Path

import pytest

from tests.faults.conftest import Action, Play, Supervise
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.states import Reason, State

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("action", "code", "reason", "told"),
    [
        (
            {"do": "crash", "signal": "SIGSEGV"},
            ErrorCode.WORKER_CRASHED,
            Reason.WORKER_CRASH,
            "SIGSEGV",
        ),
        (
            {"do": "crash", "signal": "SIGABRT"},
            ErrorCode.WORKER_CRASHED,
            Reason.WORKER_CRASH,
            "SIGABRT",
        ),
        (
            {"do": "crash", "signal": "SIGKILL"},
            ErrorCode.KILLED_EXTERNALLY,
            Reason.KILLED_EXTERNALLY,
            "out of memory",
        ),
        (
            {"do": "exit", "status": 0},
            ErrorCode.WORKER_CRASHED,
            Reason.WORKER_CRASH,
            "exit status 0",
        ),
        (
            {"do": "wrong_protocol", "protocol": 99},
            ErrorCode.PROTOCOL_ERROR,
            Reason.WORKER_CRASH,
            "protocol 99",
        ),
        (
            {"do": "long_line", "size": 50_000_000},
            ErrorCode.PROTOCOL_ERROR,
            Reason.WORKER_CRASH,
            "longer than",
        ),
        (
            {"do": "half_line", "then": "exit"},
            ErrorCode.WORKER_CRASHED,
            Reason.WORKER_CRASH,
            "without saying how",
        ),
        (
            {"do": "fail", "code": "builder_error", "message": "as told", "hint": "none"},
            ErrorCode.BUILDER_ERROR,
            Reason.BUILDER_ERROR,
            "as told",
        ),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
async def test_a_worker_that_breaks_fails_its_build_and_no_other(
    supervise: Supervise,
    play: Play,
    root: Path,
    action: Action,
    code: ErrorCode,
    reason: Reason,
    told: str,
) -> None:
    async with supervise() as watcher:
        broken = await watcher.start(play({"at": 0.2, **action}, speed=2))
        following = await watcher.start(play(recording="quick"))
        ended = await watcher.end(broken)
        assert (ended.state, ended.reason) == (State.FAILED, reason)
        assert ended.error
        assert ended.error.code is code
        assert told in ended.error.message
        assert (await watcher.end(following)).state is State.SUCCEEDED
    assert len(list(root.glob("*.engine"))) == 1


async def test_garbage_on_the_channel_is_noted_and_read_past(
    supervise: Supervise, play: Play
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(
            play({"at": 0.1, "do": "garbage", "size": 2000}, recording="quick")
        )
        ended = await watcher.end(build)
    assert ended.state is State.SUCCEEDED
    assert ended.notes
    assert any("no event" in note for note in ended.notes)


async def test_prints_to_stdout_and_stderr_go_to_the_log_and_not_to_the_channel(
    supervise: Supervise, play: Play
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(
            play(
                {"at": 0.1, "do": "print", "text": "\x1b[31mred\x1b[0m \u202eevil"},
                recording="quick",
            )
        )
        ended = await watcher.end(build)
        log = await watcher.service.log(build)
    assert ended.state is State.SUCCEEDED
    assert not ended.notes
    printed = [line.text for line in log.lines if "red" in line.text]
    assert len(printed) >= 2
    assert all("\x1b" not in text and "\u202e" not in text for text in printed)


async def test_a_flood_of_events_leaves_a_true_snapshot(supervise: Supervise, play: Play) -> None:
    async with supervise() as watcher:
        build = await watcher.start(
            play({"at": 0.1, "do": "flood", "count": 100_000, "of": "phases"}, recording="quick")
        )
        ended = await watcher.end(build, within_s=120)
    assert ended.state is State.SUCCEEDED
    assert len(ended.model_dump_json()) < 2_000_000


async def test_every_kind_of_end_is_told_by_a_message_with_a_hint(
    supervise: Supervise, play: Play
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play({"at": 0.1, "do": "crash"}, recording="quick"))
        ended = await watcher.end(build)
    assert ended.error
    assert ended.error.hint
    assert ended.build_id in ended.summary
    assert "failed" in ended.summary
