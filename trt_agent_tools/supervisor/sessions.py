"""Sessions and their accounts: what a caller's builds may cost together, and what they have cost."""

import secrets
from datetime import datetime, timezone

import anyio

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import BuildSummary
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.files import load_named_policy
from trt_agent_tools.policy.ledger import Account, reserve, settle
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.progress.cleaning import clean_label
from trt_agent_tools.store.stored import StoredSession

MAX_SESSIONS = 10_000
"""So many sessions a supervisor keeps; one more is refused."""

MAX_SESSIONS_OF_ONE = 1_000
"""Likewise of one principal, so that it leaves room for others."""


class OpenSession:
    """A session as the supervisor holds it. `owner` is the principal that it belongs to."""

    def __init__(
        self,
        *,
        owner: str,
        policy: Policy,
        label: str | None = None,
        budget_s: float | None = None,
        concurrent_builds: int = 1,
        is_default: bool = False,
    ) -> None:
        self.session_id = f"s_{secrets.token_urlsafe(18)}"
        self.is_default = is_default
        self.owner = owner
        self.policy = policy
        self.label = label
        self.created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.account = Account(budget_s)
        self.concurrent_builds = concurrent_builds
        self.queued_builds = policy.session.queued_builds
        self.slots = anyio.Semaphore(concurrent_builds)
        self.extension_left_s = policy.session.extension_total

    def reserve(self, build_id: str, now: float, at_most_s: float | None) -> None:
        """Note that a build holds a device from `now` (monotonic seconds)."""
        self.account = reserve(self.account, build_id, now, at_most_s=at_most_s)

    def settle(self, build_id: str, now: float) -> None:
        """Charge a build that gave its device back at `now`."""
        self.account = settle(self.account, build_id, now)

    def check_room(self, asked_s: float | None, now: float) -> None:
        """Judge whether a build may start that asks for `asked_s` GPU seconds, if it says.

        Raises:
            Refusal: there is nothing left, or less than was asked for.
        """
        left = self.account.left_s(now)
        if left is None or (left > 0 and (asked_s is None or asked_s <= left)):
            return
        raise Refusal(
            ErrorCode.BUDGET_EXHAUSTED,
            f"session {self.session_id} has {format_duration(left)} of "
            f"{format_duration(self.account.budget_s or 0)} GPU time left",
            "Tighten limits.gpu_time to what is left, or open_session with more GPU time."
            if left > 0
            else "open_session with more GPU time, if its policy allows it.",
            {"left_s": round(left, 1), "budget_s": self.account.budget_s},
        )

    def snapshot(self, builds: list[BuildSummary], left_out: int, now: float) -> Session:
        """Return what is told of the session."""
        account = self.account
        left = account.left_s(now)
        used = account.used_s(now)
        budget = (
            f"{format_duration(used)} GPU time used, no limit"
            if account.budget_s is None or left is None
            else f"{format_duration(used)} of {format_duration(account.budget_s)} GPU time used, "
            f"{format_duration(left)} left"
        )
        return Session(
            session_id=self.session_id,
            label=clean_label(self.label),
            policy=one_line(self.policy.name),
            created_at=self.created_at,
            summary=f"{self.session_id}: {budget}; {len(builds) + left_out} builds",
            budget_s=account.budget_s,
            spent_s=round(used, 3),
            reserved_s=round(account.reserved_s(now), 3),
            left_s=None if left is None else round(left, 3),
            extension_left_s=self.extension_left_s,
            concurrent_builds=self.concurrent_builds,
            queued_builds=self.queued_builds,
            builds=builds,
            builds_left_out=left_out,
        )


class Sessions:
    """All sessions of a supervisor; every principal has a default one.

    `policy` is the supervisor's own: the one of default sessions, unless another is named.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._sessions: dict[str, OpenSession] = {}
        self._defaults: dict[tuple[str, str | None], OpenSession] = {}

    def default(self, owner: str, policy: str | None = None) -> OpenSession:
        """Return the session of builds that name none: one for each life of a supervisor.

        With `policy`, the name of one, it is that policy's: a principal whose default policy becomes
        another begins anew.

        Raises:
            Refusal: the policy's file is gone or no longer valid.
        """
        if (owner, policy) not in self._defaults:
            rules = self._policy if policy is None else load_named_policy(policy)
            session = _session(owner, rules, "default")
            session.is_default = True
            self._defaults[owner, policy] = self._add(session)
        return self._defaults[owner, policy]

    def restore(self, stored: StoredSession) -> OpenSession:
        """Take a session back that an earlier supervisor opened, with what it has spent."""
        session = OpenSession(
            owner=stored.owner,
            policy=Policy.model_validate_json(stored.policy),
            label=stored.label,
            budget_s=stored.budget_s,
            concurrent_builds=stored.concurrent_builds,
        )
        session.session_id = stored.session_id
        session.created_at = stored.created_at
        session.queued_builds = stored.queued_builds
        session.extension_left_s = stored.extension_left_s
        session.account = Account(stored.budget_s, stored.spent_s)
        return self._add(session)

    def knows(self, session_id: str | None) -> bool:
        """Whether the session is open here, so that the journal need not be asked."""
        return session_id is None or session_id in self._sessions

    def find(
        self, session_id: str | None, owner: str, default_policy: str | None = None
    ) -> OpenSession:
        """Return a session of this owner; without an id the default one.

        Raises:
            Refusal: no session of this owner has this id; see also `default`.
        """
        if session_id is None:
            return self.default(owner, default_policy)
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise Refusal(
                ErrorCode.UNKNOWN_SESSION,
                f"there is no session {one_line(session_id, 60)!r}",
                "open_session makes one; without session_id the default session is used.",
            )
        return session

    def open(self, request: SessionRequest, policy: Policy, owner: str) -> OpenSession:
        """Open a session with at most what `policy` allows.

        Raises:
            Refusal: more is asked for, or too many sessions are open.
        """
        allowed = policy.session
        if request.gpu_time is not None and request.gpu_time <= 0:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT, "gpu_time is positive", 'Give a duration such as "30m".'
            )
        if (
            allowed.gpu_time is not None
            and request.gpu_time is not None
            and request.gpu_time > allowed.gpu_time
        ):
            raise Refusal(
                ErrorCode.ABOVE_CEILING,
                f"policy {policy.name} allows a session {format_duration(allowed.gpu_time)} GPU time",
                f"Ask for at most {format_duration(allowed.gpu_time)}, or name another policy.",
                {"ceiling": allowed.gpu_time},
            )
        concurrent = request.concurrent_builds
        if concurrent is not None and concurrent > allowed.concurrent_builds:
            raise Refusal(
                ErrorCode.ABOVE_CEILING,
                f"policy {policy.name} allows {allowed.concurrent_builds} builds at once",
                f"Ask for at most {allowed.concurrent_builds}.",
                {"ceiling": allowed.concurrent_builds},
            )
        return self._add(_session(owner, policy, request.label, request.gpu_time, concurrent))

    def _add(self, session: OpenSession) -> OpenSession:
        known = self._sessions.values()
        of_owner = sum(1 for other in known if other.owner == session.owner)
        if len(known) >= MAX_SESSIONS or of_owner >= MAX_SESSIONS_OF_ONE:
            raise Refusal(
                ErrorCode.QUEUE_FULL,
                f"{of_owner} sessions of yours are open",
                "Use a session that is open already.",
            )
        self._sessions[session.session_id] = session
        return session


def _session(
    owner: str,
    policy: Policy,
    label: str | None,
    gpu_time: float | None = None,
    concurrent: int | None = None,
) -> OpenSession:
    return OpenSession(
        owner=owner,
        policy=policy,
        label=label,
        budget_s=gpu_time if gpu_time is not None else policy.session.gpu_time,
        concurrent_builds=concurrent or policy.session.concurrent_builds,
    )
