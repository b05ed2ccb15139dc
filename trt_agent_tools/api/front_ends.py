"""What a front end of a host is held to: the one rule for every call that names files."""

from typing import Protocol

from trt_agent_tools.api.control import Control
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import Snapshot


class FrontEndService(Protocol):
    """A service that holds a call to what its front end allows."""

    async def start(
        self, request: StartRequest, *, wait_s: float = 0.0, front_end: FrontEnd | None = None
    ) -> Snapshot:
        """See `BuildService.start`."""

    async def inspect(
        self, request: InspectRequest, *, front_end: FrontEnd | None = None
    ) -> Inspection:
        """See `BuildService.inspect`."""

    async def open_session(
        self, request: SessionRequest, *, front_end: FrontEnd | None = None
    ) -> Session:
        """See `BuildService.open_session`."""


def judge_front_end(front_end: FrontEnd | None, control: Control | None) -> None:
    """Judge whether a call may come with this `front_end`, and count it as use of the host.

    Over the supervisor's own socket, where there is a `control`, it has to; elsewhere it must not.

    Raises:
        Refusal: it may not, or the host is ending.
    """
    if (front_end is None) is not (control is None):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            "front_end is missing"
            if front_end is None
            else "front_end is taken over the supervisor's own socket alone",
            "Send one that says what the operator of the front end allows."
            if front_end is None
            else "Leave it out: the server's operator says what is allowed.",
        )
    if front_end is not None and not front_end.roots:
        raise Refusal(
            ErrorCode.OUTSIDE_ROOTS,
            "this front end has no folder that it may use",
            "Its operator gives one with --root.",
            {"roots": []},
        )
    if control is not None:
        control.check_open()
        control.touch()
