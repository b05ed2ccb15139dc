"""Sessions and their accounts: what a caller's builds may cost together, and what they have cost."""

import secrets
import time
from collections.abc import Callable
from datetime import datetime, timezone
from weakref import WeakValueDictionary

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
from trt_agent_tools.supervisor.shares import share_of

MAX_SESSIONS = 10_000
"""So many opened sessions a supervisor keeps in memory; for one more the longest unused is left to the
journal."""

MAX_SESSIONS_OF_ONE = 1_000
"""Likewise of one principal; but what it used within `UNUSED_S` stays, and one more is refused: so fast
may it open sessions."""

UNUSED_S = 600.0
"""A session that was not named for so long makes room for another of its principal."""

MAX_DEFAULTS = 10_000
"""So many default sessions are kept; beyond, those go that never had a build."""


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
        self.used_at = time.monotonic()
        self.has_built = False
        """Whether a build was ever accepted in it; without, another in its place allows no more."""

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
    """The sessions of a supervisor; every principal has a default one.

    `policy` is the supervisor's own: the one of default sessions, unless another is named.

    Sessions that were opened stay in memory within bounds; the others are the journal's, which gives
    them back with what they have spent. So none is left to it before `is_written` says that the journal
    has everything. A default session lasts as long as its supervisor once it has had a build: one in its
    place would have the whole budget again.
    """

    def __init__(self, policy: Policy, is_written: Callable[[], bool] = lambda: True) -> None:
        self._policy = policy
        self._is_written = is_written
        self._opened: dict[str, OpenSession] = {}
        """Those that were opened or restored, the longest unused first."""
        self._defaults: dict[tuple[str, str | None], OpenSession] = {}
        self._alive: WeakValueDictionary[str, OpenSession] = WeakValueDictionary()
        """All that anything holds, a live build perhaps: there are never two of one id."""

    def default(self, owner: str, policy: str | None = None) -> OpenSession:
        """Return the session of builds that name none: one for each life of a supervisor.

        With `policy`, the name of one, it is that policy's: a principal whose default policy becomes
        another begins anew.

        Raises:
            Refusal: the policy's file is gone or no longer valid.
        """
        session = self._defaults.pop((owner, policy), None)
        if session is None:
            rules = self._policy if policy is None else load_named_policy(policy)
            session = _session(owner, rules, "default")
            session.is_default = True
            self._alive[session.session_id] = session
            self._make_room_for_default()
        # At the end: the first is the longest unused.
        self._defaults[owner, policy] = session
        return session

    def restore(self, stored: StoredSession) -> OpenSession:
        """Take a session back from the journal, with what it has spent.

        Raises:
            Refusal: its principal has too many in use.
        """
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
        return session_id is None or session_id in self._alive

    def find(
        self, session_id: str | None, owner: str, default_policy: str | None = None
    ) -> OpenSession:
        """Return a session of this owner; without an id the default one.

        Raises:
            Refusal: no session of this owner has this id; see also `default`.
        """
        if session_id is None:
            return self.default(owner, default_policy)
        session = self._alive.get(session_id)
        if session is None or session.owner != owner:
            raise Refusal(
                ErrorCode.UNKNOWN_SESSION,
                f"there is no session {one_line(session_id, 60)!r}",
                "open_session makes one; without session_id the default session is used.",
            )
        session.used_at = time.monotonic()
        if self._opened.pop(session_id, None) is not None:
            self._opened[session_id] = session
        return session

    def open(self, request: SessionRequest, policy: Policy, owner: str) -> OpenSession:
        """Open a session with at most what `policy` allows.

        Raises:
            Refusal: more is asked for, or this principal has too many in use.
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

    def discard(self, session: OpenSession) -> None:
        """Know a session no more that was opened in vain."""
        self._opened.pop(session.session_id, None)

    def _add(self, session: OpenSession) -> OpenSession:
        own = [other for other in self._opened.values() if other.owner == session.owner]
        most = share_of(session.owner, whole=MAX_SESSIONS, share=MAX_SESSIONS_OF_ONE)
        if len(own) >= most:
            unused_s = time.monotonic() - own[0].used_at
            if unused_s < UNUSED_S or not self._is_written():
                raise Refusal(
                    ErrorCode.QUEUE_FULL,
                    f"{len(own)} sessions of yours are in use, as many as may be",
                    "Use one of them, or leave out session_id for your default session; one that was "
                    f"not used for {format_duration(UNUSED_S)} makes room.",
                    {"limit": "sessions_of_principal", "sessions_of_principal": len(own)},
                )
            self.discard(own[0])
        elif len(self._opened) >= MAX_SESSIONS:
            if not self._is_written():
                raise Refusal(
                    ErrorCode.JOURNAL_UNAVAILABLE,
                    "no session can be left to the journal, which cannot be written",
                    "Use a session that is open already.",
                )
            del self._opened[next(iter(self._opened))]
        self._opened[session.session_id] = self._alive[session.session_id] = session
        return session

    def _make_room_for_default(self) -> None:
        if len(self._defaults) < MAX_DEFAULTS:
            return
        for key, session in self._defaults.items():
            if not session.has_built:
                del self._defaults[key]
                return


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
