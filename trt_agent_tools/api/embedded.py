"""The supervisor inside this process: one for its state folder all the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.place import LOCK, make_private
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.telemetry.turn_on import Telemetry

FLUSH_S = 0.5
"""The last traces get so long: MCP clients kill a server two seconds after its stdin's end."""


@asynccontextmanager
async def embedded(config: SupervisorConfig) -> AsyncIterator[BuildService]:
    """Be the supervisor of the state folder until the block is left; its builds end with it.

    Raises:
        Refusal: another process is (`SUPERVISOR_RUNNING`), the state folder cannot be used
            (`JOURNAL_UNAVAILABLE`), or the policy is not valid.
    """
    telemetry = Telemetry(metrics=False)
    supervisor = Supervisor(config, telemetry.observers)
    lock = FolderLock(config.state_dir / LOCK)
    try:
        make_private(config.state_dir)
        taken = lock.take()
    except OSError as error:
        raise Refusal(
            ErrorCode.JOURNAL_UNAVAILABLE,
            f"the state folder {config.state_dir} cannot be used: {error}",
            "Check its disk and permissions, or give another one with --state-dir.",
        ) from error
    if not taken:
        raise Refusal(
            ErrorCode.SUPERVISOR_RUNNING,
            f"another supervisor holds {config.state_dir}",
            "Leave out --embedded to use that one, or give another --state-dir.",
            {"state_dir": str(config.state_dir)},
        )
    try:
        async with supervisor as service:
            yield service
    finally:
        lock.release()
        await telemetry.aclose(FLUSH_S)
