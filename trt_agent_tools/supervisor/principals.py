"""The service as one caller sees it: its own builds and sessions, under policies that it may name."""

from dataclasses import dataclass

from trt_agent_tools.model.documents import PolicyList, Recording
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import BuildList, BuildLog, Detail, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.supervisor.shares import LOCAL


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and which policies it may name.

    Without any in `policies` it is the supervisor's own alone; None allows every policy that has a name.
    """

    principal: str
    policies: tuple[str, ...] | None = ()


LOCAL_CALLER = Caller(LOCAL, None)
"""The operating-system user that runs the server: every process of that user is trusted alike."""


class PrincipalService:
    """A `BuildService` over a supervisor for one caller.

    Builds and sessions of others are unknown to it, as if they had never been.
    """

    def __init__(self, supervisor: Supervisor, caller: Caller) -> None:
        self._supervisor = supervisor
        self._principal = caller.principal
        self._policies = caller.policies

    async def start(self, request: StartRequest, *, wait_s: float = 0.0) -> Snapshot:
        """See `BuildService.start`."""
        self._check(request.policy)
        if request.session_id is not None:
            # Another token of the same principal may have opened it, under a policy of its own, whose
            # budget and slots hold whatever policy the build names.
            self._check(await self._supervisor.policy_of(request.session_id, self._principal))
        return await self._supervisor.start(
            request.model_copy(update={"policy": self._named(request.policy)}),
            wait_s=wait_s,
            principal=self._principal,
            default_policy=self._default_policy,
        )

    async def progress(
        self,
        build_id: str,
        *,
        wait_s: float = 0.0,
        since_seq: int | None = None,
        detail: Detail = Detail.SUMMARY,
    ) -> Snapshot:
        """See `BuildService.progress`."""
        return await self._supervisor.progress(
            build_id, wait_s=wait_s, since_seq=since_seq, detail=detail, principal=self._principal
        )

    async def cancel(
        self,
        build_id: str,
        *,
        reason: str | None = None,
        wait_s: float = 0.0,
        at_once: bool = False,
    ) -> Snapshot:
        """See `BuildService.cancel`."""
        return await self._supervisor.cancel(
            build_id, reason=reason, wait_s=wait_s, at_once=at_once, principal=self._principal
        )

    async def extend(self, build_id: str, *, limit: str, by: float | str, reason: str) -> Snapshot:
        """See `BuildService.extend`."""
        return await self._supervisor.extend(
            build_id, limit=limit, by=by, reason=reason, principal=self._principal
        )

    async def list_builds(
        self, *, session_id: str | None = None, state: State | None = None, limit: int = 20
    ) -> BuildList:
        """See `BuildService.list_builds`."""
        return await self._supervisor.list_builds(
            session_id=session_id, state=state, limit=limit, principal=self._principal
        )

    async def open_session(self, request: SessionRequest) -> Session:
        """See `BuildService.open_session`."""
        self._check(request.policy)
        policy = self._named(request.policy) or self._default_policy
        return await self._supervisor.open_session(
            request.model_copy(update={"policy": policy}), principal=self._principal
        )

    async def session(self, session_id: str | None = None) -> Session:
        """See `BuildService.session`."""
        return await self._supervisor.session(
            session_id, principal=self._principal, default_policy=self._default_policy
        )

    async def log(
        self, build_id: str, *, tail: int = 50, min_severity: Severity | None = None
    ) -> BuildLog:
        """See `BuildService.log`."""
        return await self._supervisor.log(
            build_id, tail=tail, min_severity=min_severity, principal=self._principal
        )

    async def manifest(self, build_id: str) -> Manifest:
        """See `BuildService.manifest`."""
        return await self._supervisor.manifest(build_id, principal=self._principal)

    async def recording(self, build_id: str, *, tail: int = 200) -> Recording:
        """See `BuildService.recording`."""
        return await self._supervisor.recording(build_id, tail=tail, principal=self._principal)

    async def policies(self) -> PolicyList:
        """See `BuildService.policies`."""
        listed = await self._supervisor.policies()
        if self._policies is None:
            return listed
        allowed = self._allowed
        return PolicyList(
            policies=[
                policy.model_copy(update={"is_default": policy.name == allowed[0]})
                for policy in listed.policies
                if policy.name in allowed
            ]
        )

    async def inspect(self, request: InspectRequest) -> Inspection:
        """See `BuildService.inspect`."""
        return await self._supervisor.inspect(request, principal=self._principal)

    @property
    def _allowed(self) -> tuple[str, ...]:
        return self._policies or (self._supervisor.own_policy,)

    @property
    def _default_policy(self) -> str | None:
        """The name of the policy of the default session; None for the supervisor's own."""
        return self._policies[0] if self._policies else None

    def _named(self, policy: str | None) -> str | None:
        """Return a policy as the supervisor takes it: its own may come from any file, and has no name."""
        return None if self._policies == () else policy

    def _check(self, policy: str | None) -> None:
        if policy is None or self._policies is None or policy in self._allowed:
            return
        raise Refusal(
            ErrorCode.POLICY_NOT_ALLOWED,
            f"you may not name policy {one_line(policy, 80)!r}",
            f"Yours: {', '.join(self._allowed)}. Without a policy the first of them holds.",
            {"valid": list(self._allowed)},
        )
