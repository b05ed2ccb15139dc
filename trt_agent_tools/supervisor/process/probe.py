"""Finds out whether a backend works, in a worker that only loads the library and says what it takes."""

from dataclasses import dataclass
from typing import Literal

import anyio

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import PROTOCOL, Failed, Ready
from trt_agent_tools.model.request import ProbeOrder
from trt_agent_tools.supervisor.process.errand import NoAnswerError, ask
from trt_agent_tools.supervisor.process.pump import ProtocolError


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
    why = f"it took longer than {timeout_s:.0f} s"
    with anyio.move_on_after(timeout_s):
        try:
            answer = await ask(ProbeOrder(protocol=PROTOCOL, backend=backend))
        except ProtocolError as error:
            return Probe(
                backend,
                None,
                ErrorInfo(ErrorCode.PROTOCOL_ERROR, str(error), "Reinstall this package."),
            )
        except NoAnswerError as error:
            why = f"its process died: {error}"
        else:
            if isinstance(answer, Ready):
                return Probe(backend, answer, None)
            if isinstance(answer, Failed):
                return Probe(backend, None, answer.error)
    return Probe(
        backend,
        None,
        ErrorInfo(
            ErrorCode.BACKEND_UNAVAILABLE,
            f"the library did not load: {why}",
            "Try its import in a Python of its own.",
        ),
    )
