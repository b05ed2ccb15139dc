"""Starts the host process in this one: the lock first, so that the loser of a race ends at once."""

import math
from typing import TYPE_CHECKING

import anyio

from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.host_log import log_here
from trt_agent_tools.api.place import LOCK, make_private
from trt_agent_tools.supervisor.config import SupervisorConfig

if TYPE_CHECKING:
    from trt_agent_tools.api.tcp import TcpConfig

IDLE_S = 600.0
"""A supervisor without builds and front ends ends after so long."""

ALREADY_RUNNING = 5
"""The exit status of a supervisor that found another one."""


def supervise(config: SupervisorConfig, *, idle_s: float = IDLE_S) -> int:
    """Be the supervisor of the state folder until it is idle, is stopped or gets a signal.

    What is printed goes to the log in the state folder from here on.

    Returns:
        The exit status: 0, or `ALREADY_RUNNING`.

    Raises:
        Refusal: the policy is not valid.
        OSError: the state folder cannot be used.
    """
    make_private(config.state_dir)
    lock = FolderLock(config.state_dir / LOCK)
    if not lock.take():
        return ALREADY_RUNNING
    try:
        log_here(config.state_dir)
        # Only the winner pays for the server.
        from trt_agent_tools.api.host import host  # noqa: PLC0415

        return anyio.run(host, config, lock, idle_s)
    finally:
        lock.release()


def serve_tcp(config: SupervisorConfig, tcp: "TcpConfig") -> int:
    """Be the supervisor of the state folder, for callers over TCP too, until a stop or a signal.

    What is logged stays on standard error.

    Returns:
        The exit status: 0, or `ALREADY_RUNNING`.

    Raises:
        Refusal: the policy is not valid, or the address cannot be used.
        OSError: the state folder cannot be used.
    """
    make_private(config.state_dir)
    lock = FolderLock(config.state_dir / LOCK)
    if not lock.take():
        return ALREADY_RUNNING
    try:
        from trt_agent_tools.api.host import host  # noqa: PLC0415

        return anyio.run(host, config, lock, math.inf, tcp)
    finally:
        lock.release()
