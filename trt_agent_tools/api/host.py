"""The host process: a supervisor behind the HTTP API on its state folder's Unix socket."""

import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from trt_agent_tools import __version__
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.host_log import log_here
from trt_agent_tools.api.listener import FINISH_S, Listener
from trt_agent_tools.api.place import (
    LOG,
    choose_socket,
    make_private,
    read_record,
    remove_record,
    write_record,
)
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

LOOK_S = 1.0
"""How often a host looks whether it can still be found."""

ANSWERED_S = 2.0 * FINISH_S + 1.0
"""The server's tasks end within this, or are cancelled."""

_log = logging.getLogger(__name__)


async def host(config: SupervisorConfig, lock: FolderLock, idle_s: float) -> int:
    """Serve the state folder until no build and no front end was there for `idle_s`, a stop or a signal.

    `lock` is held. Live builds are cancelled at the end, and their last snapshots still reach whoever
    follows them. Returns the exit status.

    Raises:
        Refusal: the policy is not valid.
        OSError: the state folder or the socket cannot be used.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    supervisor = Supervisor(config)
    failure: OSError | Refusal | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as serving:
            try:
                async with supervisor as service:
                    # Made where the supervisor lives: the answers of its last moments are sent below.
                    control = Control(service)
                    app = make_app(service, control=control)
                    listener = Listener(app, choose_socket(config.state_dir), serving)
                    write_record(config.state_dir, listener.path)
                    listener.open()
                    try:
                        await _until_stopped(config, lock, listener, control, signals, idle_s)
                    except BaseException:  # also a cancel: nobody is to connect any more
                        listener.close()
                        raise
                remove_record(config.state_dir)
                listener.close()
            except (OSError, Refusal) as error:
                # Raised inside, the task group would wrap it.
                failure = error
            serving.cancel_scope.deadline = anyio.current_time() + ANSWERED_S
    if failure:
        raise failure
    return 0


async def _until_stopped(
    config: SupervisorConfig,
    lock: FolderLock,
    listener: Listener,
    control: Control,
    signals: AsyncIterator[signal.Signals],
    idle_s: float,
) -> None:
    _log.info("version %s serves %s", __version__, config.state_dir)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, signals, control)
        tasks.start_soon(control.end_when_idle, idle_s)
        tasks.start_soon(_stay_findable, config, lock, listener, control)
        await control.stopping.wait()
        tasks.cancel_scope.cancel()
    _log.info("ending")


async def _stop_on_signal(signals: AsyncIterator[signal.Signals], control: Control) -> None:
    async for number in signals:
        _log.info("%s", number.name)
        control.stopping.set()


async def _stay_findable(
    config: SupervisorConfig, lock: FolderLock, listener: Listener, control: Control
) -> None:
    """Put back what is taken out of the state folder, as long as nobody else holds it."""
    told = ""
    while True:
        await anyio.sleep(LOOK_S)
        try:
            if not config.state_dir.is_dir() and not await control.builds_live():
                _log.warning("the state folder is gone")
                control.stopping.set()
            elif not _put_back(config.state_dir, lock, listener):
                _log.error("another supervisor has taken the state folder over")
                control.stopping.set()
            told = ""
        except OSError as error:
            if str(error) != told:
                _log.warning("the state folder is not as it was: %s", error)
            told = str(error)


def _put_back(state_dir: Path, lock: FolderLock, listener: Listener) -> bool:
    """Make good what is missing; return False where another process holds the folder."""
    make_private(state_dir)
    if not lock.hold():
        return False
    if not (state_dir / LOG).exists():
        log_here(state_dir)
    if not listener.is_found():
        _log.warning("the socket was taken away")
        choose_socket(state_dir)
        listener.open()
    record = read_record(state_dir)
    if record is None or record.pid != os.getpid():
        write_record(state_dir, listener.path)
    return True
