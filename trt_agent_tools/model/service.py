"""`BuildService`: what every front end talks to, wherever the supervisor lives."""

from typing import Protocol

from trt_agent_tools.model.documents import PolicyList, Recording
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import BuildList, BuildLog, Detail, Snapshot
from trt_agent_tools.model.states import State

INSPECT_S = 30.0
"""The longest that looking at a model takes."""


class BuildService(Protocol):
    """Starts, shows and ends builds. Every call may raise `Refusal`; none waits beyond `wait_s`.

    A call that is cancelled or whose caller is gone never ends a build.
    """

    async def start(self, request: StartRequest, *, wait_s: float = 0.0) -> Snapshot:
        """Accept a build and return at once, or after `wait_s` at most as `progress` would."""

    async def progress(
        self,
        build_id: str,
        *,
        wait_s: float = 0.0,
        since_seq: int | None = None,
        detail: Detail = Detail.SUMMARY,
    ) -> Snapshot:
        """Return the build's snapshot.

        With `wait_s` (0 to `MAX_WAIT_S`) wait for a phase change, a warning or the end first; with
        `since_seq` such a change after that seq counts as come already.
        """

    async def cancel(
        self,
        build_id: str,
        *,
        reason: str | None = None,
        wait_s: float = 0.0,
        at_once: bool = False,
    ) -> Snapshot:
        """Ask for the build's end, and with `wait_s` wait for it. A build that has ended stays so.

        `at_once` begins at SIGKILL: no grace, for a person who asked twice.
        """

    async def extend(self, build_id: str, *, limit: str, by: float | str, reason: str) -> Snapshot:
        """Raise a limit of a live build by a duration, at most to the policy's ceiling.

        Deadlines stay anchored to when they were set: an extension adds to them, it restarts none.
        """

    async def list_builds(
        self, *, session_id: str | None = None, state: State | None = None, limit: int = 20
    ) -> BuildList:
        """Return the newest builds, perhaps of one session or in one state only."""

    async def open_session(self, request: SessionRequest) -> Session:
        """Open a session with a budget of its own, at most what its policy allows."""

    async def session(self, session_id: str | None = None) -> Session:
        """Return a session; without an id the caller's default one."""

    async def log(
        self, build_id: str, *, tail: int = 50, min_severity: Severity | None = None
    ) -> BuildLog:
        """Return the last `tail` lines of the build's log, cleaned of control characters."""

    async def manifest(self, build_id: str) -> Manifest:
        """Return the manifest of a build's engine, as it was written beside it.

        A build without one is refused with `NO_MANIFEST`.
        """

    async def recording(self, build_id: str, *, tail: int = 200) -> Recording:
        """Return the last `tail` events of a build's worker, as it sent them."""

    async def policies(self) -> PolicyList:
        """Return the policies that this caller may name."""

    async def inspect(self, request: InspectRequest) -> Inspection:
        """Look at a model without building it: no device is held and no weight is loaded.

        Ends within `INSPECT_S`, whatever the model.
        """
