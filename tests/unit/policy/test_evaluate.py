"""Each rule: when it warns and ends a build, on what evidence, and in which words."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Action, Level, LimitUse, Rule, Verdict
from trt_agent_tools.policy.evaluate import HARD, MEASURES, Judged, Measure, evaluate
from trt_agent_tools.policy.ledger import Account, Reservation
from trt_agent_tools.policy.observation import Observation, RunningPhase
from trt_agent_tools.policy.policy import Policy

GIB = 1 << 30
TIMING = ("Building", "Building engine", "Timing tactics")
SEEN = Observation(
    at=105.0,
    seq=42,
    state=State.BUILDING,
    held_s=100.0,
    quiet_s=60.0,
    inactive_s=50.0,
    unattended_s=70.0,
    projected_s=300.0,
    rss_bytes=3 * GIB,
    gpu_memory_bytes=2 * GIB,
    phases=(
        RunningPhase(TIMING[:1], 99.0),
        RunningPhase(TIMING[:2], 90.0),
        RunningPhase(TIMING, 80.0),
    ),
    current="Timing tactics",
    last_log="warning: no implementation",
)


def policy(rules: Mapping[str, object], warn_at: float = 0.8) -> Policy:
    return Policy.model_validate({"rules": rules, "escalation": {"warn_at": warn_at}})


def judge(rules: Mapping[str, object], seen: Observation = SEEN) -> Judged:
    (found,) = evaluate(seen, policy(rules))
    return found


# rule, limits at which SEEN is well within, warned and exceeded, what is measured, words, evidence
CASES = [
    ("gpu_time", "10m", "2m", "100s", "held its device for 1m40s of at most 1m40s"),
    ("build_time", "10m", "2m", "100s", "run for 1m40s of at most 1m40s"),
    ("step_stall", "10m", "60s", "50s", "no callback and no CPU or GPU use for 50.0s"),
    ("silent", "10m", "70s", "60s", "no callback for 1m00s of at most 1m00s"),
    ("unattended", "10m", "80s", "70s", "nobody has asked about the build for 1m10s"),
    ("host_memory", "30GiB", "3.5GiB", "3GiB", "hold 3.00 GiB of at most 3.00 GiB host memory"),
    ("gpu_memory", "30GiB", "2.4GiB", "2GiB", "hold 2.00 GiB of at most 2.00 GiB GPU memory"),
]


@pytest.mark.parametrize(("rule", "ok", "warned", "exceeded", "words"), CASES)
def test_a_rule_warns_near_its_limit_and_ends_the_build_at_it(
    rule: str, ok: str, warned: str, exceeded: str, words: str
) -> None:
    levels = [judge({rule: limit}).level for limit in (ok, warned, exceeded)]
    assert levels == [Level.OK, Level.WARNED, Level.EXCEEDED]
    found = judge({rule: exceeded})
    assert found.action is Action.CANCEL
    assert words in found.verdict.message
    assert "; " in found.verdict.message  # and what can be done
    assert found.verdict.threshold == found.said.limit
    assert (found.verdict.seq, found.verdict.at_s) == (42, 105.0)
    assert found.verdict.observed[rule] == found.used
    assert judge({rule: warned}).verdict.message
    assert judge({rule: ok}).verdict.message == ""


def test_waiting_and_starting_have_limits_of_their_own() -> None:
    queued = Observation(30.0, 1, State.QUEUED, queue_s=30.0, unattended_s=30.0)
    found = judge({"queue_time": "30s"}, queued)
    assert found.action is Action.CANCEL
    assert "waited for a device for 30.0s" in found.verdict.message
    starting = Observation(30.0, 1, State.STARTING, held_s=20.0, startup_s=20.0)
    found = judge({"startup_time": "20s"}, starting)
    assert found.action is Action.CANCEL
    assert "TensorRT has not begun after 20.0s" in found.verdict.message
    assert evaluate(SEEN, policy({"startup_time": "1s", "queue_time": "1s"})) == ()


def test_a_hung_builder_is_told_with_its_last_phase_and_log_line() -> None:
    verdict = judge({"step_stall": "50s"}).verdict
    assert verdict.message.startswith(
        "no callback and no CPU or GPU use for 50.0s: the builder is hung; "
        "last phase Timing tactics, last warning 'warning: no implementation'; "
    )
    assert verdict.observed == {"step_stall": 50.0, "quiet_s": 60.0, "inactive_s": 50.0}


def test_a_long_log_line_or_path_does_not_make_a_long_sentence() -> None:
    seen = replace(SEEN, last_log="x" * 2000, current="y" * 2000)
    assert len(judge({"step_stall": "50s"}, seen).verdict.message) < 800
    deep = replace(SEEN, phases=(RunningPhase(("z" * 200,) * 30, 80.0),))
    assert len(judge({"phase_time": {"z*": "1s"}}, deep).verdict.message) < 800


def test_a_phase_is_held_to_the_pattern_that_means_it() -> None:
    found = judge({"phase_time": {"Timing*": "80s"}})
    assert (found.used, found.action, found.pattern) == (80.0, Action.CANCEL, "Timing*")
    assert found.verdict.phase == "Building > Building engine > Timing tactics"
    assert found.verdict.rule.reason is Reason.PHASE_TIME
    assert found.use.phase == "Timing*"
    assert "phase Building > Building engine > Timing tactics has run for 1m20s" in (
        found.verdict.message
    )


def test_of_several_phases_the_longest_counts_and_every_pattern_for_itself() -> None:
    rules = {"phase_time": {"Building > **": "90s", "*": "200s", "Parsing": "1s"}}
    inside, anything = evaluate(SEEN, policy(rules))
    assert (inside.used, inside.level) == (90.0, Level.EXCEEDED)
    assert (anything.used, anything.level) == (99.0, Level.OK)


def test_a_phase_limit_is_never_told_to_be_extendable() -> None:
    assert "extend_build" not in judge({"phase_time": {"Timing*": "90s"}}).verdict.message


def test_an_expected_overrun_is_a_multiple_of_build_time() -> None:
    found = judge_of(Rule.PROJECTED_OVERRUN, {"projected_overrun": 1.5, "build_time": "200s"})
    assert (found.used, found.level, found.use.used_ratio) == (1.5, Level.EXCEEDED, 1.5)
    assert "past builds let expect 1.50 times build_time" in found.verdict.message
    assert found.verdict.observed["projected_s"] == 300.0
    assert evaluate(SEEN, policy({"projected_overrun": 1.5})) == ()
    unknown = replace(SEEN, projected_s=None)
    (other,) = evaluate(unknown, policy({"projected_overrun": 1.5, "build_time": "200s"}))
    assert other.rule is Rule.BUILD_TIME


def judge_of(rule: Rule, rules: Mapping[str, object]) -> Judged:
    (found,) = (item for item in evaluate(SEEN, policy(rules)) if item.rule is rule)
    return found


def test_what_a_limit_can_be_extended_to_is_told_with_the_warning() -> None:
    warned = judge({"build_time": {"limit": "2m", "ceiling": "1h"}})
    assert warned.level is Level.WARNED
    assert warned.verdict.message.endswith("extend_build can raise build_time to 1h00m")
    fixed = judge({"build_time": "2m"})
    assert "extend_build" not in fixed.verdict.message


def test_observing_says_so_and_ends_nothing() -> None:
    found = judge({"silent": {"limit": "60s", "mode": "observe"}})
    assert (found.level, found.action) == (Level.EXCEEDED, Action.WOULD_CANCEL)
    assert "(only observed)" in found.verdict.message
    assert found.use.observed_only is True
    warned = judge({"silent": {"limit": "70s", "mode": "observe", "ceiling": "2h"}})
    assert "(only observed)" in warned.verdict.message
    assert "extend_build" not in warned.verdict.message


def test_a_rule_can_warn_earlier_than_the_policy() -> None:
    assert judge({"silent": {"limit": "100s", "warn_at": 0.5}}).level is Level.WARNED
    assert judge({"silent": "100s"}).level is Level.OK


def test_what_is_not_known_or_does_not_apply_is_not_judged() -> None:
    nothing = Observation(5.0, 1, State.CANCELLING)
    every = {name: 1 for name, *_ in CASES} | {"phase_time": {"**": 1}, "projected_overrun": 1}
    assert evaluate(nothing, policy(every), Account(0.0), 5.0) == ()


def test_the_session_comes_first_and_rules_in_the_order_in_which_they_act() -> None:
    rules: dict[str, object] = {name: exceeded for name, _, _, exceeded, _ in CASES}
    rules |= {"phase_time": {"**": 1}, "projected_overrun": 1, "startup_time": 1, "queue_time": 1}
    seen = replace(SEEN, queue_s=9.0, startup_s=9.0)
    account = Account(50.0, running={"b_1": Reservation(0.0)})
    found = [item.rule for item in evaluate(seen, policy(rules), account, 100.0)]
    assert found == list(Rule)


@pytest.mark.parametrize("rule", list(MEASURES))
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_rule_that_cannot_be_evaluated_is_told_and_a_hard_limit_fails_closed(
    rule: Rule, mode: str
) -> None:
    def broken(seen: Observation) -> float:
        raise OSError("no such counter")

    measures: dict[Rule, Measure] = {**MEASURES, rule: broken}
    limited = policy({rule.value: {"limit": 1000, "mode": mode}})
    (found,) = evaluate(SEEN, limited, measures=measures)
    closed = rule in HARD and mode == "enforce"
    assert found.action is (Action.CANCEL if closed else Action.WARNED)
    assert found.verdict.message.startswith(
        f"{rule.value} could not be evaluated (OSError: no such counter)"
    )
    assert ("the build is ended" in found.verdict.message) is closed
    assert found.use.level is found.level
    assert found.verdict.observed == {}


def test_a_rule_that_raises_leaves_the_others_as_they_are() -> None:
    def broken(seen: Observation) -> float:
        raise RuntimeError("gone")

    limits = policy({"silent": "60s", "step_stall": "1h"})
    found = evaluate(SEEN, limits, measures={**MEASURES, Rule.STEP_STALL: broken})
    assert [(item.rule, item.action) for item in found] == [
        (Rule.STEP_STALL, Action.WARNED),
        (Rule.SILENT, Action.CANCEL),
    ]


def test_an_account_that_cannot_be_read_ends_the_build() -> None:
    class Broken(Account):
        def used_s(self, now: float) -> float:
            raise ArithmeticError(f"corrupt at {now}")

    (found,) = evaluate(SEEN, policy({}), Broken(100.0), 5.0)
    assert (found.rule, found.action) == (Rule.GPU_BUDGET, Action.CANCEL)
    assert "corrupt" in found.verdict.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_measure_that_is_no_number_is_a_fault(value: float) -> None:
    (hard,) = evaluate(replace(SEEN, held_s=value), policy({"build_time": "1h"}))
    assert hard.action is Action.CANCEL
    (soft,) = evaluate(replace(SEEN, quiet_s=value), policy({"silent": "1h"}))
    assert soft.action is Action.WARNED


def test_an_error_of_many_lines_is_told_in_one() -> None:
    def broken(seen: Observation) -> float:
        raise ValueError("a\nb\x1b[31m" + "c" * 5000)

    measures = {**MEASURES, Rule.SILENT: broken}
    (found,) = evaluate(SEEN, policy({"silent": "1h"}), measures=measures)
    assert "\n" not in found.verdict.message
    assert "\x1b" not in found.verdict.message


def test_verdicts_and_uses_survive_json() -> None:
    for name, _, _, exceeded, _ in CASES:
        found = judge({name: exceeded})
        for kind, value in ((Verdict, found.verdict), (LimitUse, found.use)):
            adapter = TypeAdapter(kind)
            assert adapter.validate_json(adapter.dump_json(value), strict=True) == value


def test_every_rule_has_a_reason() -> None:
    for rule in Rule:
        assert isinstance(rule.reason, Reason)
