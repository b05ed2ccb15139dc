"""Holds every live build against its policy, in a task of its own, and carries verdicts out."""

import logging
import time
from collections.abc import Callable, Iterable

import anyio
from anyio.abc import TaskGroup

from trt_agent_tools.model.states import Reason
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.policy.evaluate import HARD, evaluate
from trt_agent_tools.policy.observation import observe
from trt_agent_tools.policy.policy import Escalation, Mode, TimeRule
from trt_agent_tools.supervisor.build import Build, CancelRequest

EVALUATE_S = 0.2
"""Between two evaluations: a limit fires within half a second of its time, with room to spare."""

GAP_S = 2.0
"""A longer pause between two evaluations, in which this process did not work, means that it was stopped:
nothing that it could have missed meanwhile counts as silence. A pause that its own work made, for a
caller perhaps, is none: callers would keep the limits on silence off by keeping the server busy."""

_log = logging.getLogger(__name__)


class Watch:
    """Evaluates the builds that `builds` gives, until cancelled."""

    def __init__(self, builds: Callable[[], Iterable[Build]]) -> None:
        self._builds = builds
        self.watched_since = float("-inf")
        """Silence before this moment (the event loop's clock) does not count."""
        self._telling: TaskGroup

    async def run(self) -> None:
        """Evaluate at a steady rate, on a clock that neither steps nor runs while the host sleeps."""
        before, worked = anyio.current_time(), time.process_time()
        async with anyio.create_task_group() as self._telling:
            while True:
                await anyio.sleep(EVALUATE_S)
                now, works = anyio.current_time(), time.process_time()
                gap_s, busy_s = now - before, works - worked
                before, worked = now, works
                if gap_s - busy_s > GAP_S:
                    self.watched_since = now
                elif gap_s > GAP_S:
                    # What the workers told meanwhile is read before its absence is judged.
                    await anyio.sleep(EVALUATE_S)
                for build in self._builds():
                    self.judge(build)

    def judge(self, build: Build) -> None:
        """Evaluate one build now, also out of turn."""
        now = anyio.current_time()
        if build.has_ended or build.cancel_request is not None:
            return
        try:
            self._evaluate(build, now)
        except Exception:  # noqa: BLE001  (a fault of ours: told, and hard limits fail closed)
            _log.exception("evaluating build %s", build.facts.build_id)
            self._fail_closed(build)

    def _evaluate(self, build: Build, now: float) -> None:
        at = now - build.accepted
        seen = observe(
            build.view,
            at,
            attended_at=build.attended_at,
            watched_since=self.watched_since - build.accepted,
            estimate=build.expected(at),
        )
        judged = evaluate(seen, build.policy, build.session.account, now)
        build.judged = judged
        for item in judged:
            if item.action is Action.NONE or not build.first_time(item):
                continue
            # Written and shown in a task: a slow disk must not hold up the other builds' limits.
            self._telling.start_soon(build.give, item.verdict)
            if item.action is Action.CANCEL:
                build.ask_to_end(CancelRequest(item.rule.reason, _patience(build, item.rule)))
                return

    def _fail_closed(self, build: Build) -> None:
        enforced = [
            rule
            for rule in HARD
            if isinstance(said := build.policy.rule(rule), TimeRule) and said.mode is Mode.ENFORCE
        ]
        if not enforced and build.session.account.budget_s is None:
            return
        self._telling.start_soon(
            build.note,
            "The policy could not be evaluated, and it has hard limits: the build is ended.",
        )
        reason = Reason.GPU_BUDGET if not enforced else enforced[0].reason
        build.ask_to_end(CancelRequest(reason, build.policy.escalation))


def _patience(build: Build, rule: Rule) -> Escalation:
    """Return how patiently a rule ends a build. A used up budget has no grace: it would be overspent."""
    patience = build.policy.escalation
    return (
        patience.model_copy(update={"cancel_grace": 0.0}) if rule is Rule.GPU_BUDGET else patience
    )
