"""Finds the supervisor of a state folder, starts one where there is none, and attaches to it."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import anyio
from pydantic import ValidationError

from trt_agent_tools import __version__
from trt_agent_tools.api.client import RemoteService
from trt_agent_tools.api.connection import Connection, GoneError
from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.host_log import log_size, log_tail, open_log
from trt_agent_tools.api.messages import API_PROTOCOL, Hello, StopBody
from trt_agent_tools.api.place import LOG, STARTING, find_socket, make_private, read_record
from trt_agent_tools.api.supervise import ALREADY_RUNNING
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import FrontEnd
from trt_agent_tools.supervisor.config import EngineCacheConfig, SupervisorConfig

START_S = 5.0
"""Where no supervisor answers within this, and none is being started, the front end gives up."""

SLOW_START_S = 20.0
"""So long it waits for a process that is being started and lives: on a busy host that takes time."""

HELLO_S = 2.0
"""Who does not say hello within this is taken for hung."""

_POLL_S = 0.02
_AGAIN_S = 0.5


@asynccontextmanager
async def attach(config: SupervisorConfig, front_end: FrontEnd) -> AsyncIterator[RemoteService]:
    """Give the service of the state folder's supervisor, which is started if there is none.

    It outlives this process and its builds go on. When it dies, what waits for it is refused, and the
    next call goes to another.

    Raises:
        Refusal: none could be started (`SUPERVISOR_GONE`), or the one that runs is of a version that
            this one cannot talk to (`OTHER_VERSION`).
    """
    find = partial(find_or_start, config)
    async with RemoteService(await find(), front_end, find=find) as service:
        yield service


async def find_or_start(config: SupervisorConfig) -> Path:
    """Return the socket of the state folder's supervisor, within `START_S` (`SLOW_START_S`).

    Raises:
        Refusal: see `attach`.
    """
    with closing(_Starter(config)) as starter:
        while (left_s := starter.left_s()) > 0:
            hello = await ask(config.state_dir, within_s=min(HELLO_S, left_s))
            if hello is None:
                starter.go_on()
            elif not hello.stopping and not await _replaced(config.state_dir, hello):
                return find_socket(config.state_dir)
            await anyio.sleep(_POLL_S)
        holder = read_record(config.state_dir)
        raise starter.refusal(
            "no supervisor answered in time"
            + (f"; the last one was process {holder.pid}" if holder else "")
        )


async def ask(state_dir: Path, *, within_s: float = HELLO_S) -> Hello | None:
    """Return who answers for the state folder, None if nobody does within `within_s`."""
    try:
        with anyio.fail_after(within_s):
            async with Connection(find_socket(state_dir)) as connection:
                return Hello.model_validate_json(await connection.call("GET", "/v1/hello"))
    except (GoneError, TimeoutError, ValidationError, Refusal):
        return None


async def stop(state_dir: Path, *, force: bool = False, pid: int | None = None) -> Hello | None:
    """Ask the state folder's supervisor to end; None if there is none. It begins to end at once.

    Raises:
        Refusal: it has builds and `force` is not set, or it is not process `pid`.
    """
    try:
        async with Connection(find_socket(state_dir)) as connection:
            return Hello.model_validate_json(
                await connection.call("POST", "/v1/stop", body=StopBody(force=force, pid=pid))
            )
    except GoneError:
        return None


async def _replaced(state_dir: Path, hello: Hello) -> bool:
    """Ask an older supervisor without builds to end; return whether another is to be looked for.

    Raises:
        Refusal: the one that runs stays, and speaks another protocol.
    """
    is_idle = not hello.builds_live and not hello.foreground
    if is_idle and _release(hello.version) < _release(__version__):
        try:
            await stop(state_dir, pid=hello.pid)
        except Refusal:
            # A build came meanwhile, or another supervisor: the next hello tells.
            return True
        return True
    if hello.protocol == API_PROTOCOL:
        return False
    raise Refusal(
        ErrorCode.OTHER_VERSION,
        f"the supervisor of {state_dir} is of version {hello.version} (protocol {hello.protocol}), "
        f"this is {__version__} (protocol {API_PROTOCOL})",
        "Use the version that it has, or another --state-dir; or let its builds end and stop it "
        "with: trt-agent-tools stop",
        {
            "supervisor_version": hello.version,
            "version": __version__,
            "builds_live": hello.builds_live,
            "pid": hello.pid,
        },
    )


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as 1.2.3, what follows them left out."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


class _Starter:
    """Starts a host process, and another when it lost against one that was about to end."""

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._turn = FolderLock(config.state_dir / STARTING)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_began = log_size(config.state_dir)
        self._not_before = float("-inf")
        self._began = anyio.current_time()
        self._is_anothers_turn = False

    def left_s(self) -> float:
        """Return how much longer to wait for a supervisor."""
        lives = self._process is not None and self._process.poll() is None
        patience = SLOW_START_S if lives or self._is_anothers_turn else START_S
        return self._began + patience - anyio.current_time()

    def go_on(self) -> None:
        """Do what is to be done while nobody answers.

        Raises:
            Refusal: a process could not be started, or ended without serving.
        """
        if self._process is None:
            if anyio.current_time() >= self._not_before:
                self._start()
            return
        status = self._process.poll()
        if status is None:
            return
        if status not in {0, ALREADY_RUNNING}:
            raise self.refusal(
                f"the supervisor could not be started: it ended with status {status}"
            )
        # The one that holds the folder will answer, or end.
        self._process = None
        self._not_before = anyio.current_time() + _AGAIN_S

    def close(self) -> None:
        """Let another front end have its turn."""
        self._turn.release()

    def refusal(self, message: str) -> Refusal:
        """Return why there is no supervisor, with the last lines that its log got meanwhile."""
        state_dir = self._config.state_dir
        lines = log_tail(state_dir, self._log_began)
        return Refusal(
            ErrorCode.SUPERVISOR_GONE,
            "; ".join([message, *lines[-2:]]),
            f"See {state_dir / LOG}. Give another folder with --state-dir, or keep the supervisor in "
            "this process with --embedded.",
            {"log": lines, "state_dir": str(state_dir)},
        )

    def _start(self) -> None:
        try:
            make_private(self._config.state_dir)
            # While another front end starts one there is nothing to do but to look for it.
            self._is_anothers_turn = not self._turn.take()
            if not self._is_anothers_turn:
                self._process = self._begin()
        except OSError as error:
            raise self.refusal(f"the supervisor could not be started: {error}") from error

    def _begin(self) -> subprocess.Popen[bytes]:
        state_dir, policy = self._config.state_dir, self._config.policy
        if policy.endswith(".toml"):
            policy = str(Path(policy).absolute())
        log = open_log(state_dir)
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "trt_agent_tools", "supervise"),
                    *("--state-dir", str(state_dir), "--policy", policy),
                    *_cache_options(self._config.engine_cache),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # No module is taken from the folder that happens to be the current one.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=True,
            )
        finally:
            os.close(log)
        # It is to outlive this process; ending sooner, it is to leave no zombie.
        threading.Thread(target=process.wait, daemon=True).start()
        return process


def _cache_options(cache: EngineCacheConfig | None) -> tuple[str, ...]:
    if cache is None:
        return ("--engine-cache-size", "0")
    size = str(cache.limit_bytes)
    return ("--engine-cache", str(cache.folder), "--engine-cache-size", size)
