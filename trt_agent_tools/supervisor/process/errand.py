"""Sends a worker on an errand: one order and one answer, without a build or a device."""

import tempfile
from pathlib import Path

import anyio

from trt_agent_tools.model.events import Failed, Inspected, Ready
from trt_agent_tools.model.request import InspectOrder, ProbeOrder
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.log_file import read_end
from trt_agent_tools.supervisor.process.ladder import kill
from trt_agent_tools.supervisor.process.launch import Worker, launch, tell
from trt_agent_tools.supervisor.process.pump import EventReader, read_lines

Answer = Ready | Inspected | Failed

_EXIT_S = 1.0
"""How long a worker that has closed its end may take to be gone."""

_SHOWN = 500
_READ_BYTES = 64 * 1024
"""What a worker printed may be of any length."""


class NoAnswerError(Exception):
    """The worker ended without an answer; the text has its exit status and what it printed last."""


async def ask(order: ProbeOrder | InspectOrder, *, visible_device: str | None = None) -> Answer:
    """Return a fresh worker's answer. However the wait for it ends, its processes are gone then.

    There is no bound here: cancel the call to set one. `visible_device` is as for `launch`.

    Raises:
        NoAnswerError: the worker died.
        ProtocolError: it said what the protocol does not allow.
        OSError: it could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-") as folder:
        log = Path(folder) / "worker.log"
        # Between being started and being known a worker would be nobody's to end.
        with anyio.CancelScope(shield=True):
            worker = await launch(folder=Path(folder), log=log, visible_device=visible_device)
        try:
            await tell(worker, order)
            answer = await _listen(worker)
            if answer is None:
                # Its own exit status, not that of the kill below.
                with anyio.move_on_after(_EXIT_S):
                    await worker.process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await kill(worker)
                await worker.process.aclose()
        if answer is None:
            printed = one_line("\n".join(read_end(log, _READ_BYTES).lines)[-_SHOWN:])
            raise NoAnswerError(
                f"exit status {worker.process.returncode}, {printed or 'no output'}"
            )
        return answer


async def _listen(worker: Worker) -> Answer | None:
    stdout = worker.process.stdout
    if stdout is None:
        return None
    reader = EventReader(accepted=worker.launched, launched=worker.launched)
    async for line in read_lines(stdout):
        event = reader.read(line, anyio.current_time())
        if isinstance(event, Answer):
            return event
    return None
