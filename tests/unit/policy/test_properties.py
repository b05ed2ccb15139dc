"""What holds for every build and every policy, in simulated time."""

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.policy.builds import (
    PATTERN,
    TIMED,
    UNIT_S,
    Recorded,
    limits_s,
    policy_with,
    recorded_builds,
    rule_tables,
)
from trt_agent_tools.model.events import Heartbeat, Origin, PhaseStarted, WorkerEvent
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import (
    BUSY_PERCENT,
    ActivitySampled,
    StateChanged,
    VerdictGiven,
)
from trt_agent_tools.model.verdict import Action, Rule, Verdict
from trt_agent_tools.policy.evaluate import evaluate
from trt_agent_tools.policy.limits import tighten
from trt_agent_tools.policy.observation import Observation, RunningPhase, observe
from trt_agent_tools.policy.policy import Mode, Policy
from trt_agent_tools.policy.replay import INTERVAL_S, replay
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView

many = settings(max_examples=100)
rule_names = st.sampled_from(TIMED)


def end_of(policy: Policy, build: Recorded) -> float:
    ended = replay(policy, build.events).ended
    return math.inf if ended is None else ended.at_s


@many
@given(recorded_builds())
def test_a_build_that_stays_within_every_limit_is_never_cancelled(build: Recorded) -> None:
    policy = policy_with({rule: build.most(rule) + UNIT_S for rule in TIMED})
    timeline = replay(policy, build.events)
    assert timeline.ended is None
    assert all(verdict.action is Action.WARNED for verdict in timeline.verdicts)


@many
@given(recorded_builds(), rule_names, limits_s)
def test_a_build_that_exceeds_a_limit_is_cancelled_within_one_interval(
    build: Recorded, rule: Rule, limit: float
) -> None:
    crossed = build.crossed(rule, limit)
    assume(crossed is not None)
    assert crossed is not None
    ended = replay(policy_with({rule: limit}), build.events).ended
    assert ended is not None
    assert ended.rule is rule
    assert crossed <= ended.at_s <= crossed + INTERVAL_S
    assert ended.observed[rule.value] >= limit - 0.001


@many
@given(recorded_builds(), rule_names, limits_s)
def test_a_build_is_never_cancelled_before_it_exceeds_a_limit(
    build: Recorded, rule: Rule, limit: float
) -> None:
    crossed = build.crossed(rule, limit)
    assert (end_of(policy_with({rule: limit}), build) == math.inf) == (crossed is None)


@many
@given(recorded_builds(), rule_tables, st.dictionaries(rule_names, st.floats(0.01, 1.0)))
def test_a_tighter_policy_never_lets_a_build_live_longer(
    build: Recorded, rules: dict[Rule, dict[str, object]], shares: dict[Rule, float]
) -> None:
    loose = policy_with(rules)
    asked: dict[str, object] = {}
    for rule, share in shares.items():
        said = rules.get(rule, {}).get("limit", 5.0)
        assert isinstance(said, float)
        asked[rule.value] = {PATTERN: said * share} if rule is Rule.PHASE_TIME else said * share
    assert end_of(tighten(loose, asked), build) <= end_of(loose, build)


@many
@given(recorded_builds(), rule_tables)
def test_observing_never_cancels(build: Recorded, rules: dict[Rule, dict[str, object]]) -> None:
    observing = {rule: {**said, "mode": Mode.OBSERVE.value} for rule, said in rules.items()}
    timeline = replay(policy_with(observing), build.events)
    assert timeline.ended is None
    assert all(verdict.action is not Action.CANCEL for verdict in timeline.verdicts)


@many
@given(recorded_builds(), rule_tables)
def test_observing_tells_when_enforcing_would_have_cancelled(
    build: Recorded, rules: dict[Rule, dict[str, object]]
) -> None:
    enforcing = {rule: {**said, "mode": Mode.ENFORCE.value} for rule, said in rules.items()}
    observing = {rule: {**said, "mode": Mode.OBSERVE.value} for rule, said in rules.items()}
    would = [
        verdict.at_s
        for verdict in replay(policy_with(observing), build.events).verdicts
        if verdict.action is Action.WOULD_CANCEL
    ]
    assert min(would, default=math.inf) == end_of(policy_with(enforcing), build)


@many
@given(recorded_builds(), rule_tables)
def test_replaying_twice_tells_the_same(
    build: Recorded, rules: dict[Rule, dict[str, object]]
) -> None:
    policy = policy_with(rules)
    assert replay(policy, build.events) == replay(policy, build.events)


@many
@given(recorded_builds(), rule_tables, st.sampled_from((0.25, 1.0)))
def test_evaluating_only_where_a_level_can_rise_tells_what_evaluating_always_does(
    build: Recorded, rules: dict[Rule, dict[str, object]], interval_s: float
) -> None:
    policy = policy_with(rules)
    jumped = replay(policy, build.events, interval_s=interval_s)
    assert list(jumped.verdicts) == watched(policy, build.events, interval_s)


def watched(policy: Policy, events: Sequence[WorkerEvent], interval_s: float) -> list[Verdict]:
    """Evaluate at every turn and before every event, and return the verdicts to the end."""
    watch = Watch(policy)
    turn = 1
    for event in events:
        while turn * interval_s <= event.at:
            watch.judge(turn * interval_s)
            turn += 1
        watch.judge(event.at)
        watch.take(event)
    return list(watch.given.values())


class Watch:
    """A supervisor in the simplest form."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.view = fold(BuildView(), StateChanged(0.0, State.STARTING))
        self.given: dict[tuple[Rule, Action], Verdict] = {}
        self.beat: Heartbeat | None = None

    def judge(self, now: float) -> None:
        for item in evaluate(observe(self.view, now, attended_at=now), self.policy):
            key = (item.rule, item.action)
            if any(action is Action.CANCEL for _, action in self.given):
                return
            if item.action is not Action.NONE and key not in self.given:
                self.given[key] = item.verdict
                self.view = fold(self.view, VerdictGiven(now, item.verdict))

    def take(self, event: WorkerEvent) -> None:
        self.view = fold(self.view, event)
        if isinstance(event, PhaseStarted) and event.origin is Origin.TENSORRT:
            self.view = fold(self.view, StateChanged(event.at, State.BUILDING))
        elif isinstance(event, Heartbeat) and event.cpu_s is not None:
            if self.beat is not None and self.beat.cpu_s is not None:
                used = event.cpu_s - self.beat.cpu_s
                percent = 100 * used / (event.at - self.beat.at)
                busy = percent >= BUSY_PERCENT
                self.view = fold(self.view, ActivitySampled(event.at, busy, percent, 0))
            self.beat = event


wild = st.one_of(st.none(), st.floats(), st.floats(0, 1e4))
observations = st.builds(
    Observation,
    at=st.floats(0, 1e4),
    seq=st.integers(0, 10),
    state=st.sampled_from(State),
    queue_s=wild,
    held_s=wild,
    startup_s=wild,
    quiet_s=wild,
    inactive_s=wild,
    unattended_s=wild,
    projected_s=wild,
    rss_bytes=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    gpu_memory_bytes=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    phases=st.lists(
        st.builds(RunningPhase, st.tuples(st.text(), st.text()), st.floats()), max_size=3
    ).map(tuple),
    current=st.one_of(st.none(), st.text()),
    last_log=st.one_of(st.none(), st.text()),
)
whole_policies = st.builds(
    lambda limit, mode: Policy.model_validate(
        {
            "rules": {
                **{
                    name: {"limit": limit, "mode": mode}
                    for name in (
                        "queue_time",
                        "startup_time",
                        "build_time",
                        "gpu_time",
                        "step_stall",
                        "silent",
                        "unattended",
                        "host_memory",
                        "gpu_memory",
                    )
                },
                "projected_overrun": {"limit": 2, "mode": mode},
                "phase_time": {"*": {"limit": limit, "mode": mode}, "a > **": limit},
            }
        }
    ),
    st.integers(1, 10_000),
    st.sampled_from(("enforce", "observe")),
)


@many
@given(observations, whole_policies)
def test_whatever_is_measured_every_rule_gives_the_same_verdict_twice(
    seen: Observation, policy: Policy
) -> None:
    first, again = evaluate(seen, policy), evaluate(seen, policy)
    assert [item.verdict for item in first] == [item.verdict for item in again]
    for item in first:
        assert item.use.rule is item.verdict.rule is item.rule
        assert (item.verdict.message == "") == (item.action is Action.NONE)
        assert all(math.isfinite(value) for value in item.verdict.observed.values())
    if policy.rules.build_time is not None and policy.rules.build_time.mode is Mode.OBSERVE:
        assert all(item.action is not Action.CANCEL for item in first if item.pattern != "a > **")


@many
@given(observations, whole_policies)
def test_rules_are_judged_in_the_order_in_which_they_are_acted_on(
    seen: Observation, policy: Policy
) -> None:
    order = list(Rule)
    places = [order.index(item.rule) for item in evaluate(replace(seen), policy)]
    assert places == sorted(places)
