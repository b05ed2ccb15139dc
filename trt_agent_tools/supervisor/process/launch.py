"""Starts worker processes: by exec, in a session of their own, with the protocol on stdin and stdout."""

import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process
from pydantic import BaseModel

from trt_agent_tools.model.events import BUILD_TOKEN_ENV
from trt_agent_tools.supervisor.process.environment import worker_environment
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

WORKER = (sys.executable, "-m", "trt_agent_tools.worker")


@dataclass(frozen=True, slots=True)
class Worker:
    """A started worker. `launched` is on the monotonic clock."""

    process: Process
    tree: ProcessTree
    launched: float


async def launch(
    *, folder: Path, log: Path, visible_device: str | None = None, token: str | None = None
) -> Worker:
    """Start a worker in `folder` and let its stderr append to `log`. It waits for its first order.

    Every process of the build carries `token` in its environment; without one it is made here.

    Raises:
        OSError: the process cannot be started.
    """
    token = token or secrets.token_hex(16)
    environment = {
        **worker_environment(os.environ),
        BUILD_TOKEN_ENV: token,
        # A trace in the log for a crash in native code, and no module taken from the folder.
        "PYTHONFAULTHANDLER": "1",
        "PYTHONSAFEPATH": "1",
    }
    if visible_device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible_device
    launched = anyio.current_time()
    log_descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = await anyio.open_process(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_descriptor,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(log_descriptor)
    return Worker(process, ProcessTree(process.pid, token), launched)


async def tell(worker: Worker, order: BaseModel) -> bool:
    """Send an order. Return False if the worker no longer listens.

    A worker that does not read holds this up once the pipe is full: bound it, or race it with the exit.
    """
    stdin = worker.process.stdin
    if stdin is None:
        return False
    try:
        await stdin.send(order.model_dump_json().encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True
