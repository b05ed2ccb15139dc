"""After a limit ended a build: what is proposed is allowed, is a change, and claims no number without a basis."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.duration import parse_duration
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.proposal import Change, Proposal
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.limits import extend, tighten
from trt_agent_tools.policy.policy import Policy, TimeRule
from trt_agent_tools.policy.proposals import MOST, Cut, Known, propose
from trt_agent_tools.progress.past import Estimate

MINUTE = 60.0
NOTHING = Known()


def policy(**rules: object) -> Policy:
    return Policy.model_validate({"rules": rules})


def past(total_s: float, *, same: bool = True, builds: int = 3) -> Estimate:
    return Estimate(total_s, total_s * 0.8, total_s * 1.25, builds, same)


def cut(
    rule: Rule = Rule.BUILD_TIME,
    base: Policy | None = None,
    own: dict[str, str] | None = None,
    **more: object,
) -> Cut:
    """A build that its own or the policy's limit ended."""
    allowed = base or policy(build_time={"limit": "10m", "ceiling": "40m"})
    held = tighten(allowed, own or {})
    said = held.rule(rule)
    threshold = said.limit if isinstance(said, TimeRule) else 60.0
    given: dict[str, object] = {"level": 3, "extension_left_s": 3600.0, **more}
    return Cut(rule=rule, threshold=threshold, policy=held, base=allowed, **given)  # type: ignore[arg-type]


def changes(found: tuple[Proposal, ...]) -> list[Change]:
    return [proposal.change for proposal in found]


def numbers(proposal: Proposal) -> list[float | None]:
    return [proposal.expected_s, proposal.low_s, proposal.high_s]


# A lower level.


def test_without_past_builds_a_lower_level_is_proposed_without_a_number() -> None:
    [level, longer] = propose(cut(), NOTHING)
    assert level.change == Change(builder_optimization_level=1)
    assert numbers(level) == [None, None, None]
    assert "no past build tells" in level.why
    assert longer.change == Change(longer=Rule.BUILD_TIME)


def test_of_the_levels_that_fit_the_highest_is_proposed_with_what_past_builds_took() -> None:
    known = Known(by_level={0: past(60), 1: past(300), 2: past(500)})
    best = propose(cut(), known)[0]
    assert best.change == Change(builder_optimization_level=1)
    assert numbers(best) == [300.0, 240.0, 375.0]
    assert "3 past builds of this model, at level 1" in best.why


def test_a_level_that_is_known_not_to_fit_is_not_proposed_but_one_below_it_is() -> None:
    assert propose(cut(), Known(by_level={1: past(900)}))[0].change == Change(
        builder_optimization_level=0
    )
    found = propose(cut(), Known(by_level={0: past(900)}))
    assert all(change.builder_optimization_level is None for change in changes(found))


def test_builds_of_other_models_say_nothing_of_a_level() -> None:
    best = propose(cut(), Known(by_level={2: past(60, same=False)}))[0]
    assert best.change == Change(builder_optimization_level=1)
    assert best.expected_s is None


@pytest.mark.parametrize("level", [0, None])
def test_where_there_is_no_lower_level_or_none_is_known_none_is_proposed(level: int | None) -> None:
    found = propose(cut(level=level), NOTHING)
    assert changes(found) == [Change(longer=Rule.BUILD_TIME)]


def test_a_level_in_effect_or_above_it_is_not_proposed_even_if_past_builds_were_fast() -> None:
    best = propose(cut(), Known(by_level={3: past(60), 4: past(60), 1: past(60)}))[0]
    assert best.change == Change(builder_optimization_level=1)
    best = propose(cut(), Known(by_level={3: past(60), 4: past(60)}))[0]
    assert best.change == Change(builder_optimization_level=1)
    assert best.expected_s is None


# A longer limit.


def test_a_limit_of_the_build_s_own_is_raised_by_start_build() -> None:
    found = propose(cut(own={"build_time": "5m"}, level=None), Known(same=past(7 * MINUTE)))
    [proposal] = found
    assert proposal.change == Change(limits={Rule.BUILD_TIME: "9m"})
    assert numbers(proposal) == [420.0, 336.0, 525.0]


def test_a_limit_of_the_policy_s_is_raised_by_an_extension() -> None:
    [proposal] = propose(cut(level=None), Known(same=past(12 * MINUTE)))
    assert proposal.change == Change(extend={Rule.BUILD_TIME: "5m"})


def test_an_own_limit_that_must_pass_the_policy_s_is_raised_by_both() -> None:
    found = propose(cut(own={"build_time": "5m"}, level=None), Known(same=past(12 * MINUTE)))
    change = Change(limits={Rule.BUILD_TIME: "10m"}, extend={Rule.BUILD_TIME: "5m"})
    assert changes(found) == [change]
    assert change.text == "build_time 10m and build_time extended by 5m"


def test_a_limit_that_the_ceiling_keeps_too_short_is_not_proposed() -> None:
    assert propose(cut(level=None), Known(same=past(60 * MINUTE))) == ()
    base = policy(build_time="10m")
    assert propose(cut(base=base, level=None), NOTHING) == ()


def test_what_the_session_has_left_bounds_an_extension_and_a_length() -> None:
    known = Known(same=past(12 * MINUTE))
    assert propose(cut(level=None, extension_left_s=60.0), known) == ()
    assert propose(cut(level=None, session_left_s=300.0), known) == ()


def test_both_limits_on_the_length_are_raised_where_both_would_end_it() -> None:
    base = policy(build_time="20m", gpu_time="30m")
    own = {"build_time": "5m", "gpu_time": "6m"}
    [proposal] = propose(cut(base=base, own=own, level=None), Known(same=past(7 * MINUTE)))
    assert proposal.change == Change(limits={Rule.BUILD_TIME: "9m", Rule.GPU_TIME: "9m"})


def test_two_extensions_share_what_the_session_may_extend_by() -> None:
    each = {"limit": "10m", "ceiling": "40m"}
    base = policy(build_time=each, gpu_time=each)
    known = Known(same=past(12 * MINUTE))
    [proposal] = propose(cut(base=base, level=None, extension_left_s=600.0), known)
    assert proposal.change == Change(extend={Rule.BUILD_TIME: "5m", Rule.GPU_TIME: "5m"})
    assert propose(cut(base=base, level=None, extension_left_s=599.0), known) == ()


def test_past_builds_that_a_longer_build_has_proved_wrong_are_no_basis() -> None:
    [proposal] = propose(cut(level=None), Known(same=past(MINUTE)))
    assert proposal.change == Change(longer=Rule.BUILD_TIME)
    assert proposal.expected_s is None


def test_where_nothing_tells_the_length_the_sentence_says_what_was_used_and_what_is_allowed() -> (
    None
):
    [proposal] = propose(cut(level=None, where="Building engine > Timing tactics"), NOTHING)
    assert proposal.why == (
        "It used its 10m00s and was in 'Building engine > Timing tactics'. Nothing tells how much "
        "more it needs; up to 40m00s is allowed."
    )


def test_a_projected_overrun_is_answered_with_what_was_projected() -> None:
    base = policy(build_time={"limit": "10m", "ceiling": "40m"}, projected_overrun=1.5)
    found = propose(
        cut(Rule.PROJECTED_OVERRUN, base=base, level=None, projected_s=20 * MINUTE), NOTHING
    )
    assert changes(found) == [Change(extend={Rule.BUILD_TIME: "10m"})]
    assert numbers(found[0]) == [1200.0, None, None]


@pytest.mark.parametrize("rule", [Rule.STARTUP_TIME, Rule.QUEUE_TIME])
def test_before_tensorrt_has_begun_only_more_time_is_proposed(rule: Rule) -> None:
    base = policy(**{rule.value: {"limit": "1m", "ceiling": "5m"}})
    found = propose(cut(rule, base=base, profiles=3), Known(same=past(MINUTE)))
    assert changes(found) == [Change(longer=rule)]
    assert propose(cut(rule, base=policy(**{rule.value: "1m"})), NOTHING) == ()


# Sessions and phases.


def test_a_used_up_budget_is_answered_with_another_session() -> None:
    spent = Cut(Rule.GPU_BUDGET, 600.0, Policy(), Policy(), level=None)
    assert changes(propose(spent, NOTHING)) == [Change(longer=Rule.GPU_BUDGET)]
    assert changes(propose(spent, Known(same=past(12 * MINUTE)))) == [
        Change(session_gpu_time="15m")
    ]
    bounded = Cut(Rule.GPU_BUDGET, 600.0, Policy(), Policy(), session_most_s=600.0)
    assert propose(bounded, Known(same=past(12 * MINUTE))) == ()


def test_a_phase_that_was_too_long_is_answered_with_less_to_do() -> None:
    found = propose(cut(Rule.PHASE_TIME, profiles=3), NOTHING)
    assert changes(found) == [Change(builder_optimization_level=1), Change(profiles=1)]
    assert "its 3 profiles" in found[1].why


def test_a_change_is_said_in_a_few_words() -> None:
    assert Change(builder_optimization_level=0).text == "builder_optimization_level 0"
    assert Change(profiles=1).text == "1 profile"
    assert Change(longer=Rule.SILENT).text == "a longer silent"
    assert Change(session_gpu_time="15m").text == "a session with 15m GPU time"


# What holds for every build.

seconds = st.floats(0.5, 20_000)
rules = st.sampled_from(
    [
        *(Rule.BUILD_TIME, Rule.GPU_TIME, Rule.GPU_BUDGET, Rule.PHASE_TIME),
        *(Rule.PROJECTED_OVERRUN, Rule.STARTUP_TIME, Rule.QUEUE_TIME),
    ]
)


@st.composite
def time_rules(draw: st.DrawFn) -> TimeRule | None:
    if not draw(st.booleans()):
        return None
    limit = draw(seconds)
    ceiling = draw(st.none() | st.floats(1, 4).map(lambda factor: limit * factor))
    return TimeRule.model_validate({"limit": limit, "ceiling": ceiling})


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    return past(draw(seconds), same=draw(st.booleans()), builds=draw(st.integers(1, 9)))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Cut, dict[str, float]]:
    names = ("build_time", "gpu_time", "startup_time", "queue_time")
    base = policy(**{name: draw(time_rules()) for name in names})
    own: dict[str, float] = {}
    for name in names:
        said = getattr(base.rules, name)
        share = draw(st.none() | st.floats(0.1, 1))
        if share is not None:
            own[name] = share * (said.limit if said else draw(seconds))
    held = tighten(base, own)
    rule = draw(rules)
    said = held.rule(rule)
    made = Cut(
        rule=rule,
        threshold=said.limit if isinstance(said, TimeRule) else draw(seconds),
        policy=held,
        base=base,
        level=draw(st.none() | st.integers(0, 5)),
        profiles=draw(st.integers(0, 4)),
        projected_s=draw(st.none() | seconds) if rule is Rule.PROJECTED_OVERRUN else None,
        extension_left_s=draw(st.floats(0, 20_000)),
        session_left_s=draw(st.none() | seconds),
        session_most_s=draw(st.none() | seconds),
    )
    return made, own


knowns = st.builds(
    Known,
    same=st.none() | estimates(),
    by_level=st.dictionaries(st.integers(0, 5), estimates(), max_size=4),
)


@given(cuts(), knowns)
def test_whatever_is_proposed_the_next_start_is_allowed_it(
    case: tuple[Cut, dict[str, float]], known: Known
) -> None:
    ended, own = case
    for change in changes(propose(ended, known)):
        asked = {**own, **{rule.value: text for rule, text in (change.limits or {}).items()}}
        left = ended.extension_left_s
        try:
            given = tighten(ended.base, asked)
            for rule, by in (change.extend or {}).items():
                given = extend(given, rule.value, parse_duration(by), left_s=left)
                left -= parse_duration(by)
        except Refusal as refused:
            pytest.fail(str(refused.info))
        for rule in {*(change.limits or {}), *(change.extend or {})}:
            more, before = given.rule(rule), ended.policy.rule(rule)
            assert isinstance(more, TimeRule)
            assert isinstance(before, TimeRule)
            assert more.limit > before.limit
        if change.session_gpu_time is not None:
            assert parse_duration(change.session_gpu_time) <= (ended.session_most_s or math.inf)


@given(cuts(), knowns)
def test_a_level_is_proposed_below_the_one_in_effect_alone(
    case: tuple[Cut, dict[str, float]], known: Known
) -> None:
    for change in changes(propose(case[0], known)):
        if change.builder_optimization_level is not None:
            assert case[0].level is not None
            assert change.builder_optimization_level < case[0].level
        if change.profiles is not None:
            assert change.profiles < case[0].profiles


@given(cuts(), knowns)
def test_every_number_is_one_of_a_past_build_of_the_model_or_of_the_verdict(
    case: tuple[Cut, dict[str, float]], known: Known
) -> None:
    told = [known.same, *known.by_level.values()]
    basis = {round(one.total_s, 1) for one in told if one is not None and one.same}
    if case[0].projected_s is not None:
        basis.add(round(case[0].projected_s, 1))
    found = propose(case[0], known)
    assert len(found) <= MOST
    for proposal in found:
        assert proposal.expected_s is None or proposal.expected_s in basis
        assert proposal.change.text
        assert proposal.why
        if proposal.change.longer is not None:
            assert numbers(proposal) == [None, None, None]


@given(cuts())
def test_without_a_basis_there_is_no_number(case: tuple[Cut, dict[str, float]]) -> None:
    ended = case[0]
    if ended.projected_s is None:
        for proposal in propose(ended, NOTHING):
            assert numbers(proposal) == [None, None, None]
            assert proposal.change.limits is proposal.change.extend is None
