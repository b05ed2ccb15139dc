"""What goes over the HTTP API beside the shared vocabulary."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from trt_agent_tools.model.error_guide import GuidedError
from trt_agent_tools.model.inspection import InspectRequest
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.trace import traceparent_or_none

API_PROTOCOL = 1
"""Rises when a front end of before no longer understands the supervisor, or the other way round."""

DEFAULT_SESSION = "default"
"""The id that stands for the caller's default session."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StartBody(_Body):
    """A build to start. Over the Unix socket `front_end` says what its operator allows."""

    request: StartRequest
    front_end: FrontEnd | None = None

    def in_trace(self, header: str | None) -> "StartBody":
        """Return this with the trace that the header `traceparent` names, unless it names one itself."""
        traceparent = traceparent_or_none(header)
        if traceparent is None or self.request.traceparent is not None:
            return self
        request = self.request.model_copy(update={"traceparent": traceparent})
        return self.model_copy(update={"request": request})


class InspectBody(_Body):
    """A model to look at; for `front_end` see `StartBody`."""

    request: InspectRequest
    front_end: FrontEnd | None = None


class SessionBody(SessionRequest):
    """A session to open. A front end of this host says by `front_end` which policy holds without one."""

    front_end: FrontEnd | None = None

    @property
    def request(self) -> SessionRequest:
        """The session itself."""
        return SessionRequest.model_validate(self.model_dump(exclude={"front_end"}))


class CancelBody(_Body):
    """Why a build is to end. `at_once` begins at SIGKILL."""

    reason: str | None = None
    at_once: StrictBool = False


class ExtendBody(_Body):
    """A limit to raise, by a duration: seconds, or text such as "15m"."""

    limit: str
    by: float | str
    reason: str


class StopBody(_Body):
    """Ask the supervisor to end. `force` ends its builds too; with `pid` only that process ends."""

    force: StrictBool = False
    pid: int | None = None


class Hello(BaseModel):
    """Who answers on a supervisor's socket."""

    model_config = ConfigDict(frozen=True)

    version: str
    protocol: int
    pid: int
    builds_live: int = Field(description="Builds that wait or run.")
    front_ends: int = Field(description="Front ends that are attached.")
    stopping: bool = False
    foreground: bool = Field(
        False, description="Its operator runs it: front ends never replace it."
    )


class Health(BaseModel):
    """The answer of a server that is well."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


class ErrorAnswer(BaseModel):
    """The body of every answer that is a refusal or a fault."""

    model_config = ConfigDict(frozen=True)

    error: GuidedError
