"""Finds out whether a backend works, in a worker that only loads the library and says what it takes."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import PROTOCOL, Failed, Ready
from trt_agent_tools.model.request import ProbeOrder
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.ladder import kill
from trt_agent_tools.supervisor.launch import Worker, launch, tell
from trt_agent_tools.supervisor.pump import BadLine, EventReader, ProtocolError, read_lines


@dataclass(frozen=True, slots=True)
class Probe:
    """What a backend said of itself, or why it does not work."""

    backend: str
    ready: Ready | None
    error: ErrorInfo | None


async def probe_backend(
    backend: Literal["tensorrt", "tensorrt_rtx"], *, timeout_s: float = 30.0
) -> Probe:
    """Load a backend's library in a process of its own and return what it says, in `timeout_s` at most."""
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-") as folder:
        log = Path(folder) / "probe.log"
        worker = await launch(folder=Path(folder), log=log)
        probe: Probe | None = None
        try:
            with anyio.move_on_after(timeout_s):
                await tell(worker, ProbeOrder(protocol=PROTOCOL, backend=backend))
                probe = await _listen(worker, backend)
        finally:
            with anyio.CancelScope(shield=True):
                await kill(worker)
                await worker.process.aclose()
        if probe:
            return probe
        tail = one_line(log.read_text("utf-8", "replace")[-500:]) if log.exists() else ""
        return Probe(
            backend,
            None,
            ErrorInfo(
                ErrorCode.BACKEND_UNAVAILABLE,
                f"the library did not load within {timeout_s:.0f} s, or its process died: {tail}",
                "Try its import in a Python of its own.",
            ),
        )


async def _listen(worker: Worker, backend: str) -> Probe | None:
    stdout = worker.process.stdout
    if stdout is None:
        return None
    reader = EventReader(accepted=worker.launched, launched=worker.launched)
    try:
        async for line in read_lines(stdout):
            event = reader.read(line, anyio.current_time())
            if isinstance(event, Ready):
                return Probe(backend, event, None)
            if isinstance(event, Failed):
                return Probe(backend, None, event.error)
            if isinstance(event, BadLine):
                continue
    except ProtocolError as error:
        return Probe(
            backend,
            None,
            ErrorInfo(ErrorCode.PROTOCOL_ERROR, str(error), "Reinstall this package."),
        )
    return None
