"""The host process: a supervisor behind the HTTP API, on its state folder's Unix socket and on TCP."""

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from trt_agent_tools import __version__
from trt_agent_tools.api.access import always
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.host_log import log_here
from trt_agent_tools.api.listener import ANSWERED_S, Listener
from trt_agent_tools.api.place import (
    LOG,
    choose_socket,
    make_private,
    read_record,
    remove_record,
    write_record,
)
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.api.tcp import TcpConfig, TcpListener, tcp_listener
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.telemetry.turn_on import Telemetry

LOOK_S = 1.0
"""How often a host looks whether it can still be found."""

_log = logging.getLogger(__name__)


async def host(
    config: SupervisorConfig, lock: FolderLock, idle_s: float, tcp: TcpConfig | None = None
) -> int:
    """Serve the state folder until no build and no front end was there for `idle_s`, a stop or a signal.

    `lock` is held. With `tcp` callers over TCP are served too, and the log stays on standard error. Live
    builds are cancelled at the end, and their last snapshots still reach whoever follows them. Returns
    the exit status.

    Raises:
        Refusal: the policy is not valid, or the address on TCP cannot be used.
        OSError: the state folder or the socket cannot be used.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    # Its warnings are about what callers send: anybody could fill the log with them.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    telemetry = Telemetry(metrics=True)
    supervisor = Supervisor(config, telemetry.observers)
    metrics = telemetry.exposition(supervisor.condition)
    failure: OSError | Refusal | None = None
    with anyio.open_signal_receiver(*_ending_signals()) as signals:
        async with anyio.create_task_group() as serving:
            try:
                async with AsyncExitStack() as stack:
                    control = Control(supervisor, foreground=tcp is not None)
                    web: TcpListener | None = None
                    if tcp is not None:
                        # Entered before the supervisor: the answers of its last moments are sent after it.
                        web = await stack.enter_async_context(
                            tcp_listener(
                                tcp, supervisor, partial(check_ready, control, supervisor), metrics
                            )
                        )
                    here = _Here(config, lock, control, web, metrics)
                    # Raised through the listener's task group, it would come out wrapped.
                    failure = await _serve(here, supervisor, serving, signals, idle_s)
            except (OSError, Refusal) as error:
                # Likewise.
                failure = error
            serving.cancel_scope.deadline = anyio.current_time() + ANSWERED_S
        await telemetry.aclose()
    if failure:
        raise failure
    return 0


def _ending_signals() -> list[signal.Signals]:
    """Return the signals to end on: not the hang-up where it is ignored, as under nohup."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hang_up]


def check_ready(control: Control, supervisor: Supervisor) -> None:
    """Judge, without waiting, whether a host takes builds.

    Raises:
        Refusal: it is ending, or its journal cannot be written.
    """
    control.check_open()
    supervisor.check_ready()


@dataclass(frozen=True, slots=True)
class _Here:
    """What a host holds, and where it is served."""

    config: SupervisorConfig
    lock: FolderLock
    control: Control
    web: TcpListener | None
    metrics: Callable[[], bytes] | None

    @property
    def http(self) -> str | None:
        return self.web.url if self.web else None


async def _serve(
    here: _Here,
    supervisor: Supervisor,
    serving: TaskGroup,
    signals: AsyncIterator[signal.Signals],
    idle_s: float,
) -> OSError | Refusal | None:
    """Be the supervisor until the end; return why that was not possible."""
    state_dir, control = here.config.state_dir, here.control
    try:
        async with supervisor:
            app = make_app(
                always(supervisor),
                control=control,
                check_ready=partial(check_ready, control, supervisor),
                metrics=here.metrics,
            )
            listener = Listener(app, choose_socket(state_dir), serving)
            write_record(state_dir, listener.path, here.http)
            listener.open()
            try:
                if here.web:
                    here.web.open()
                await _until_stopped(here, listener, signals, idle_s)
            except BaseException:  # also a cancel: nobody is to connect any more
                listener.close()
                raise
        remove_record(state_dir)
        listener.close()
    except (OSError, Refusal) as error:
        return error
    return None


async def _until_stopped(
    here: _Here, listener: Listener, signals: AsyncIterator[signal.Signals], idle_s: float
) -> None:
    control = here.control
    _log.info("version %s serves %s", __version__, here.config.state_dir)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, signals, control)
        tasks.start_soon(control.end_when_idle, idle_s)
        tasks.start_soon(_stay_findable, here, listener)
        await control.stopping.wait()
        tasks.cancel_scope.cancel()
    _log.info("ending")


async def _stop_on_signal(signals: AsyncIterator[signal.Signals], control: Control) -> None:
    async for number in signals:
        _log.info("%s", number.name)
        control.stopping.set()


async def _stay_findable(here: _Here, listener: Listener) -> None:
    """Put back what is taken out of the state folder, as long as nobody else holds it."""
    control, state_dir = here.control, here.config.state_dir
    told = ""
    while True:
        await anyio.sleep(LOOK_S)
        try:
            if not state_dir.is_dir() and not control.builds_live():
                _log.warning("the state folder is gone")
                control.stopping.set()
            elif not _put_back(here, state_dir, listener):
                _log.error("another supervisor has taken the state folder over")
                control.stopping.set()
            told = ""
        except OSError as error:
            if str(error) != told:
                _log.warning("the state folder is not as it was: %s", error)
            told = str(error)


def _put_back(here: _Here, state_dir: Path, listener: Listener) -> bool:
    """Make good what is missing; return False where another process holds the folder."""
    make_private(state_dir)
    if not here.lock.hold():
        return False
    if here.web is None and not (state_dir / LOG).exists():
        log_here(state_dir)
    if not listener.is_found():
        _log.warning("the socket was taken away")
        choose_socket(state_dir)
        listener.open()
    record = read_record(state_dir)
    if record is None or record.pid != os.getpid():
        write_record(state_dir, listener.path, here.http)
    return True
