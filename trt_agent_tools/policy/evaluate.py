"""`evaluate`: what a policy says of a build now. Pure, total, and the same each time it is asked."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Action, Level, LimitUse, Rule, Verdict
from trt_agent_tools.policy.ledger import Account
from trt_agent_tools.policy.observation import Observation
from trt_agent_tools.policy.phase_pattern import SEPARATOR, matches
from trt_agent_tools.policy.policy import AnyRule, Mode, PhaseRule, Policy, TimeRule
from trt_agent_tools.policy.sentences import evidence, limit_use, sentence

HARD = frozenset({Rule.GPU_BUDGET, Rule.GPU_TIME, Rule.BUILD_TIME, Rule.QUEUE_TIME})
"""Rules that bound what a build may cost: one that cannot be evaluated counts as exceeded."""

Measure = Callable[[Observation], float | None]
"""What a rule measures; None where it does not apply now."""

MEASURES: Mapping[Rule, Measure] = {
    Rule.GPU_TIME: lambda seen: seen.held_s,
    Rule.BUILD_TIME: lambda seen: seen.held_s,
    Rule.QUEUE_TIME: lambda seen: seen.queue_s,
    Rule.STARTUP_TIME: lambda seen: seen.startup_s,
    Rule.STEP_STALL: lambda seen: seen.inactive_s,
    Rule.SILENT: lambda seen: seen.quiet_s,
    Rule.UNATTENDED: lambda seen: seen.unattended_s,
    Rule.HOST_MEMORY: lambda seen: seen.rss_bytes,
    Rule.GPU_MEMORY: lambda seen: seen.gpu_memory_bytes,
}

_ORDER = tuple((rule, rule.value) for rule in Rule)


@dataclass(frozen=True, slots=True)
class Judged:
    """One limit of a build at one moment: how much of it is used, and what follows.

    `used` and `next_at` are in the rule's unit; the latter is what leads to the next level, infinite
    where there is none. `pattern` and `phase` are those of a phase's limit. `fault` says why the rule
    could not be evaluated.
    """

    rule: Rule
    said: AnyRule
    used: float
    level: Level
    action: Action
    next_at: float
    seen: Observation
    pattern: str | None = None
    phase: str | None = None
    fault: str | None = None

    @property
    def use(self) -> LimitUse:
        """What a snapshot shows of it."""
        return limit_use(self.rule, self.said, self.used, self.level, self.pattern)

    @property
    def verdict(self) -> Verdict:
        """What is told of it, with the evidence."""
        rule, seen = self.rule, self.seen
        if self.fault is not None:
            told, observed = self.fault, {}
        else:
            told, observed = "", evidence(rule, self.used, seen)
            if self.level is not Level.OK:
                told = sentence(
                    rule, self.said, self.used, seen, level=self.level, phase=self.phase
                )
        return Verdict(
            rule, self.action, self.said.limit, observed, seen.seq, seen.at, told, self.phase
        )


def evaluate(
    seen: Observation,
    policy: Policy,
    account: Account | None = None,
    now: float = 0.0,
    *,
    measures: Mapping[Rule, Measure] = MEASURES,
) -> tuple[Judged, ...]:
    """Judge each rule of `policy` that applies to a build at this moment, in the order of `Rule`.

    `account` is the ledger of the build's session, and `now` the time on its clock. A rule that raises
    is warned of, and ends nothing; a hard limit that is enforced counts as exceeded then. `measures`
    says what is measured: a rule that it lacks is left out.
    """
    judged: list[Judged] = []
    rules = policy.rules
    for rule, name in _ORDER:
        if rule is Rule.GPU_BUDGET:
            judged.extend(_session_budget(seen, policy, account, now))
        elif rule is Rule.PHASE_TIME:
            for pattern, limit in rules.phase_time.items():
                judged.extend(_phase_time(pattern, limit, seen, policy))
        elif (said := getattr(rules, name)) is None:
            continue
        elif rule is Rule.PROJECTED_OVERRUN:
            judged.extend(_judged(rule, said, seen, policy, lambda seen: _overrun(seen, policy)))
        elif (measure := measures.get(rule)) is not None:
            judged.extend(_judged(rule, said, seen, policy, measure))
    return tuple(judged)


def _judged(
    rule: Rule, said: AnyRule, seen: Observation, policy: Policy, measure: Measure
) -> tuple[Judged, ...]:
    try:
        used = measure(seen)
        return () if used is None else (_judge(rule, said, used, seen, policy),)
    except Exception as error:  # noqa: BLE001  (whatever a rule raises: it is told, and hard limits hold)
        return (_faulty(rule, said, seen, error),)


def _session_budget(
    seen: Observation, policy: Policy, account: Account | None, now: float
) -> tuple[Judged, ...]:
    if account is None or account.budget_s is None or seen.held_s is None:
        return ()
    said = _always_enforced(account.budget_s)
    return _judged(Rule.GPU_BUDGET, said, seen, policy, lambda _: account.used_s(now))


def _phase_time(
    pattern: str, said: PhaseRule, seen: Observation, policy: Policy
) -> tuple[Judged, ...]:
    try:
        found = [phase for phase in seen.phases if matches(pattern, phase.path)]
        if not found:
            return ()
        longest = max(found, key=lambda phase: phase.elapsed_s)
        path = SEPARATOR.join(longest.path)
        return (_judge(Rule.PHASE_TIME, said, longest.elapsed_s, seen, policy, pattern, path),)
    except Exception as error:  # noqa: BLE001  (as above)
        return (_faulty(Rule.PHASE_TIME, said, seen, error, pattern),)


def _overrun(seen: Observation, policy: Policy) -> float | None:
    bound = policy.rules.build_time
    if bound is None or seen.projected_s is None:
        return None
    return seen.projected_s / bound.limit


@lru_cache(maxsize=1024)
def _always_enforced(limit: float) -> TimeRule:
    # A session's limit is judged like a rule. It may be 0, which no policy's rule is.
    return TimeRule.model_construct(limit=limit, mode=Mode.ENFORCE, warn_at=None, ceiling=None)


def _judge(
    rule: Rule,
    said: AnyRule,
    used: float,
    seen: Observation,
    policy: Policy,
    pattern: str | None = None,
    phase: str | None = None,
) -> Judged:
    if not math.isfinite(used):
        raise ValueError(f"it measures {used}")
    limit = said.limit
    warn_at = said.warn_at
    warning = limit * (policy.escalation.warn_at if warn_at is None else warn_at)
    if used < warning:
        level, action, next_at = Level.OK, Action.NONE, warning
    elif used < limit:
        level, action, next_at = Level.WARNED, Action.WARNED, limit
    else:
        level, next_at = Level.EXCEEDED, math.inf
        action = Action.CANCEL if said.mode is Mode.ENFORCE else Action.WOULD_CANCEL
    return Judged(rule, said, used, level, action, next_at, seen, pattern, phase)


def _faulty(
    rule: Rule, said: AnyRule, seen: Observation, error: Exception, pattern: str | None = None
) -> Judged:
    closed = rule in HARD and said.mode is Mode.ENFORCE
    told = f"{rule.value} could not be evaluated ({type(error).__name__}: {error})"
    end = "; it is a hard limit, so the build is ended" if closed else "; it is left out"
    level = Level.EXCEEDED if closed else Level.WARNED
    action = Action.CANCEL if closed else Action.WARNED
    used = said.limit if closed else 0.0
    return Judged(
        rule, said, used, level, action, math.inf, seen, pattern, None, one_line(told + end)
    )
