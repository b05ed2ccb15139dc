"""A script: runs supervisors that are killed, each in a process of its own.

Each line of stdin is an order; a forked child opens a supervisor for it and prints, line by line, what it
acknowledges: ``open``, ``accepted ID``, ``state ID STATE``, ``in ID PHASE``, ``end ID STATE``, ``closed``.
``host PID`` comes before that, ``gone STATUS`` when the child has ended. Forked, because importing takes
longer than a short build.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

import anyio
from pydantic import BaseModel

from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.supervisor.config import EngineCacheConfig, SupervisorConfig
from trt_agent_tools.supervisor.process import launch
from trt_agent_tools.supervisor.service import Supervisor

CACHE_BYTES = 1 << 30


class HostOrder(BaseModel):
    """What one supervisor is to do, and where it is to die."""

    state: str
    root: str
    policy: str
    models: list[str]
    output: str | None = None
    """Of the first build, to be overwritten."""
    cancel_in: str | None = None
    """Cancel a build once it is in this phase."""
    clock_step_s: float | None = None
    """Step the supervisor's wall clock by so much once a build is being parsed."""
    engine_cache: str | None = None
    """Keep engines there for reuse."""
    own_fault: str | None = None
    """As the interposer has it; in the supervisor."""
    worker_fault: str | None = None


def say(text: str) -> None:
    """Acknowledge: the line is in the pipe when this returns."""
    os.write(1, text.encode() + b"\n")


async def step_clock(supervisor: Supervisor, build_id: str, by_s: float) -> None:
    """Step the clock; say ``stepped`` once the journal was told of the build by the new one."""
    real = time.time
    time.time = lambda: real() + by_s
    while True:
        stored = await supervisor._journal.build(build_id)
        if stored and stored.last_wall > real() + by_s / 2:
            break
        await anyio.sleep(0.05)
    say(f"stepped {build_id}")


async def follow(supervisor: Supervisor, build_id: str, order: HostOrder) -> None:
    """Say what the supervisor says of a build, until its end."""
    state, phase, seq = "", "", 0
    cancel_in, clock_step_s = order.cancel_in, order.clock_step_s
    while True:
        snapshot = await supervisor.progress(build_id, wait_s=30, since_seq=seq, detail=Detail.TREE)
        seq = snapshot.seq
        if snapshot.ended:
            say(f"end {build_id} {snapshot.state.value}")
            return
        if snapshot.state.value != state:
            state = snapshot.state.value
            say(f"state {build_id} {state}")
        if (snapshot.current or "") != phase:
            phase = snapshot.current or ""
            say(f"in {build_id} {phase}")
        if cancel_in and cancel_in in phase:
            cancel_in = None
            await supervisor.cancel(build_id)
        if clock_step_s and "Parsing" in phase:
            by_s, clock_step_s = clock_step_s, None
            await step_clock(supervisor, build_id, by_s)


async def serve(order: HostOrder) -> None:
    """Open a supervisor, start the builds, follow them to their ends."""
    root = Path(order.root)
    config = SupervisorConfig(
        *(Path(order.state), (root,)),
        policy=order.policy,
        enable_replay=True,
        engine_cache=EngineCacheConfig(Path(order.engine_cache), CACHE_BYTES)
        if order.engine_cache
        else None,
    )
    async with Supervisor(config) as supervisor:
        say("open")
        started: list[str] = []
        for model in order.models:
            first = order.output is not None and not started
            request = StartRequest(
                model=model,
                output=order.output if first else None,
                backend=Backend.REPLAY,
                options=BuildOptions(overwrite=first),
            )
            build_id = (await supervisor.start(request)).build_id
            say(f"accepted {build_id}")
            started.append(build_id)
        async with anyio.create_task_group() as tasks:
            for build_id in started:
                tasks.start_soon(follow, supervisor, build_id, order)
    say("closed")


def run(order: HostOrder, interposer: str) -> None:
    """Be the host: arm the faults, then serve."""
    if order.own_fault:
        ctypes.CDLL(interposer).arm_fault(order.own_fault.encode())
    if order.worker_fault:
        launch.WORKER = (  # type: ignore[assignment]
            "/usr/bin/env",
            f"LD_PRELOAD={interposer}",
            f"FAULT={order.worker_fault}",
            *launch.WORKER,
        )
    anyio.run(serve, order)


def main() -> None:
    """Fork a host for every order."""
    # The workers are not to inherit it: the interposer is theirs only where an order says so.
    interposer = os.environ.pop("LD_PRELOAD")
    for line in sys.stdin:
        order = HostOrder.model_validate_json(line)
        pid = os.fork()
        if pid == 0:
            try:
                say(f"host {os.getpid()}")
                run(order, interposer)
            except BaseException:  # noqa: BLE001  (a forked child must not return into its parent's loop)
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        say(f"gone {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
