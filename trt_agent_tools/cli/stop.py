"""`stop`: ends the supervisor of a state folder and waits until its process is gone."""

import sys
from pathlib import Path

import anyio.to_thread
import psutil

from trt_agent_tools.api.attach import ask, stop
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.errors import ErrorCode, Refusal

GONE_S = 20.0
"""A supervisor ends within this: its builds have a second, SIGKILL and the last answers theirs."""


async def stop_supervisor(state_dir: Path, force: bool) -> ExitCode:
    """End it; `FAILED` if its process is still there after `GONE_S`.

    Raises:
        Refusal: builds wait or run and `force` is not set; the message names them.
    """
    hello = await ask(state_dir)
    process = _process(hello.pid) if hello else None
    try:
        stopped = await stop(state_dir, force=force, pid=hello.pid if hello else None)
    except Refusal as refusal:
        if refusal.info.code is not ErrorCode.BUILDS_LIVE:
            raise
        named = refusal.info.details.get("builds")
        builds = ", ".join(named) if isinstance(named, list) else ""
        raise Refusal(
            ErrorCode.BUILDS_LIVE,
            f"{refusal.info.message}: {builds}",
            "Wait for them, or cancel them; --force ends them now.",
        ) from refusal
    if stopped is None:
        print(f"no supervisor answers for {state_dir}")
        return ExitCode.OK
    if process is not None:
        try:
            await anyio.to_thread.run_sync(process.wait, GONE_S)
        except psutil.TimeoutExpired:
            print(f"process {stopped.pid} has not ended yet", file=sys.stderr)
            return ExitCode.FAILED
    print(f"the supervisor of {state_dir} has ended (process {stopped.pid})")
    return ExitCode.OK


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
