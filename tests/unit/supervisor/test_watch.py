"""Silence that the server slept through does not count; silence that it was kept busy through does."""

import time
from collections.abc import Callable

import anyio
import pytest

from trt_agent_tools.supervisor import watch
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.watch import Watch

pytestmark = pytest.mark.anyio

GAP_S = 0.3


def work() -> None:
    """Keep the event loop and a processor busy for longer than a gap."""
    until = time.process_time() + 2 * GAP_S
    while time.process_time() < until:
        pass


def stand_still() -> None:
    """Keep the event loop from running as a stopped process would: without a processor."""
    time.sleep(2 * GAP_S)


@pytest.mark.parametrize(
    ("blocked_by", "was_stopped"),
    [pytest.param(work, False, id="busy"), pytest.param(stand_still, True, id="stopped")],
)
async def test_only_a_pause_without_work_of_its_own_starts_silence_anew(
    monkeypatch: pytest.MonkeyPatch, blocked_by: Callable[[], None], was_stopped: bool
) -> None:
    monkeypatch.setattr(watch, "GAP_S", GAP_S)
    looked: list[anyio.Event] = [anyio.Event()]

    def builds() -> list[Build]:
        looked[0].set()
        return []

    watched = Watch(builds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.run)
        with anyio.fail_after(30):
            await looked[0].wait()
            looked[0] = anyio.Event()
            before = anyio.current_time()
            blocked_by()
            await looked[0].wait()
        assert (watched.watched_since > before) is was_stopped
        tasks.cancel_scope.cancel()
