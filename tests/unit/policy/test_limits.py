"""What an agent may change: tighten freely, extend to a ceiling, and nothing else."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.policy.limits import (
    EXTENDABLE,
    LIMIT_NAMES,
    extend,
    parse_extension,
    tighten,
)
from trt_agent_tools.policy.policy import Mode, PhaseRule, Policy, TimeRule

POLICY = Policy.model_validate(
    {
        "rules": {
            "build_time": {"limit": "2h", "ceiling": "8h", "warn_at": 0.5},
            "queue_time": "1h",
            "silent": {"limit": "10m", "mode": "observe"},
            "host_memory": "8GiB",
            "projected_overrun": 1.5,
            "phase_time": {"Timing*": "30m"},
        }
    }
)


def refused(policy: Policy, limits: Mapping[str, object]) -> ErrorInfo:
    with pytest.raises(Refusal) as caught:
        tighten(policy, limits)
    return caught.value.info


def not_extended(name: str, by_s: float, left_s: float = 1e9) -> ErrorInfo:
    with pytest.raises(Refusal) as caught:
        extend(POLICY, name, by_s, left_s=left_s)
    return caught.value.info


def test_a_limit_can_be_tightened_and_keeps_its_ceiling_and_warning() -> None:
    said = tighten(POLICY, {"build_time": "15m"}).rules.build_time
    assert said == TimeRule(limit=900, ceiling=8 * 3600, warn_at=0.5)


def test_a_tightened_limit_is_enforced_whatever_was_asked() -> None:
    asked = {"limit": "15m", "mode": "observe", "ceiling": "99h"}
    said = tighten(POLICY, {"build_time": asked}).rules.build_time
    assert said == TimeRule(limit=900, ceiling=8 * 3600, warn_at=0.5)


def test_the_same_limit_is_allowed() -> None:
    assert tighten(POLICY, {"build_time": "2h", "host_memory": "8GiB"}) == POLICY


def test_a_limit_that_the_policy_lacks_is_added_and_enforced() -> None:
    rules = tighten(POLICY, {"unattended": {"limit": "5m", "mode": "observe", "ceiling": "9h"}})
    assert rules.rules.unattended == TimeRule(limit=300)


def test_a_limit_that_is_only_observed_may_be_enforced_at_any_value() -> None:
    said = tighten(POLICY, {"silent": "1h"}).rules.silent
    assert said == TimeRule(limit=3600, ceiling=3600)


def test_phase_limits_are_added_to_those_of_the_policy() -> None:
    rules = tighten(POLICY, {"phase_time": {"Building > **": "5m", "Timing*": "10m"}}).rules
    assert rules.phase_time == {
        "Timing*": PhaseRule(limit=600),
        "Building > **": PhaseRule(limit=300),
    }


@pytest.mark.parametrize(
    ("limits", "limit", "words"),
    [
        ({"build_time": "3h"}, 7200.0, "build_time is 2h00m under this policy"),
        ({"queue_time": 3600.1}, 3600.0, "queue_time is 1h00m"),
        ({"host_memory": "9GiB"}, 8 << 30, "host_memory is 8589934592 bytes"),
        ({"projected_overrun": 2}, 1.5, "projected_overrun is 1.5"),
        ({"phase_time": {"Timing*": "31m"}}, 1800.0, "phase_time 'Timing*' is 30m00s"),
    ],
)
def test_loosening_is_refused_and_names_the_limit(
    limits: Mapping[str, object], limit: float, words: str
) -> None:
    info = refused(POLICY, limits)
    assert info.code is ErrorCode.ABOVE_CEILING
    assert words in info.message
    assert info.details["limit"] == limit
    assert "extend_build" in info.hint


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"build_tme": "1h"}, "there is no limit 'build_tme'"),
        ({"gpu_budget": "1h"}, "there is no limit 'gpu_budget'"),
        ({"x\n" * 500: "1h"}, "there is no limit"),
        ({"build_time": None}, "limits.build_time is null"),
        ({"phase_time": None}, "limits.phase_time is null"),
        ({"build_time": "1 hour"}, "limits.build_time: '1 hour' is no duration"),
        ({"build_time": "x" * 100_000}, "limits.build_time: "),
        ({"build_time": 0}, "limits.build_time: Input should be greater than 0"),
        ({"build_time": -5}, "not negative"),
        ({"build_time": True}, "limits.build_time: a duration is"),
        ({"build_time": ["1h"]}, "limits.build_time: a duration is"),
        ({"build_time": {}}, "limits.build_time: Field required"),
        ({"build_time": {"limit": "1h", "mode": "off"}}, "limits.build_time.mode"),
        ({"host_memory": "lots"}, "limits.host_memory: 'lots' is no size"),
        ({"phase_time": "1h"}, "limits.phase_time: "),
        ({"phase_time": {"a > ": "1h"}}, "names joined by"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_is(limits: Mapping[str, object], words: str) -> None:
    info = refused(POLICY, limits)
    assert info.code is ErrorCode.INVALID_ARGUMENT
    assert words in info.message
    assert len(info.message) < 400
    assert info.hint


def test_an_unknown_limit_is_refused_with_all_valid_ones() -> None:
    info = refused(POLICY, {"time": 1})
    assert info.details["valid"] == list(LIMIT_NAMES)


def test_a_limit_is_extended_to_its_ceiling_and_no_further() -> None:
    longer = extend(POLICY, "build_time", 6 * 3600, left_s=1e9)
    assert longer.rules.build_time == TimeRule(limit=8 * 3600, ceiling=8 * 3600, warn_at=0.5)
    with pytest.raises(Refusal) as caught:
        extend(longer, "build_time", 1, left_s=1e9)
    assert caught.value.info.code is ErrorCode.ABOVE_CEILING
    assert caught.value.info.details["ceiling"] == 8 * 3600
    assert "may reach 8h00m" in caught.value.info.message


def test_asking_for_too_much_is_refused_with_what_could_be_had() -> None:
    info = not_extended("build_time", 7 * 3600)
    assert info.code is ErrorCode.ABOVE_CEILING
    assert info.hint == "Ask for at most 6h00m more."


def test_a_limit_without_a_ceiling_cannot_be_extended() -> None:
    info = not_extended("queue_time", 1)
    assert info.code is ErrorCode.ABOVE_CEILING
    assert info.hint == "This policy allows no extension of it."


def test_a_session_extends_by_so_much_in_all() -> None:
    info = not_extended("build_time", 3600, left_s=1800)
    assert info.code is ErrorCode.ABOVE_CEILING
    assert info.details["extension_left_s"] == 1800
    assert "30m00s" in info.hint


@pytest.mark.parametrize(
    "name", ["host_memory", "phase_time", "projected_overrun", "gpu_time", "name", "", "x" * 9999]
)
def test_what_is_no_limit_of_the_build_cannot_be_extended(name: str) -> None:
    info = not_extended(name, 60)
    assert info.code is ErrorCode.INVALID_ARGUMENT
    assert info.details["valid"] == ["build_time", "queue_time", "silent"]
    assert len(info.message) < 200


def test_a_tightened_limit_can_be_extended_back_to_the_policys_ceiling() -> None:
    tight = tighten(POLICY, {"build_time": "1m", "queue_time": "1m"})
    assert extend(tight, "build_time", 3600, left_s=1e9).rules.build_time is not None
    back = extend(tight, "queue_time", 59 * 60, left_s=1e9).rules.queue_time
    assert back is not None
    assert back.limit == 3600
    with pytest.raises(Refusal):
        extend(tight, "queue_time", 3600, left_s=1e9)


def test_an_extension_to_the_very_ceiling_survives_rounding() -> None:
    policy = Policy.model_validate({"rules": {"silent": {"limit": 0.1, "ceiling": 0.3}}})
    said = extend(policy, "silent", 0.2, left_s=1.0).rules.silent
    assert said is not None
    assert said.limit == 0.3


@pytest.mark.parametrize("value", [0, -1, "0s", "soon", None, float("nan"), float("inf"), [], True])
def test_an_extension_is_a_positive_duration(value: object) -> None:
    with pytest.raises(Refusal, match="by: ") as caught:
        parse_extension(value)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.hint
    assert parse_extension("15m") == 900.0


def test_every_limit_in_seconds_but_those_of_phases_can_be_extended() -> None:
    timed = {
        name
        for name in LIMIT_NAMES
        if isinstance(
            getattr(Policy.model_validate({"rules": {name: _value(name)}}).rules, name), TimeRule
        )
    }
    assert timed == set(EXTENDABLE)


def _value(name: str) -> object:
    return {"phase_time": {"a": 1}}.get(name, 1)


durations = st.floats(0.001, 1e6)


@given(durations, durations)
def test_a_tightened_limit_is_never_above_the_policys(allowed: float, asked: float) -> None:
    policy = Policy.model_validate({"rules": {"build_time": allowed}})
    try:
        said = tighten(policy, {"build_time": asked}).rules.build_time
    except Refusal:
        assert asked > allowed
        return
    assert said is not None
    assert said.limit == asked <= allowed
    assert said.mode is Mode.ENFORCE


@given(durations, st.lists(durations, max_size=6))
def test_extensions_never_pass_the_ceiling_however_often_asked(
    ceiling: float, extensions: list[float]
) -> None:
    limit = ceiling / 2
    policy = Policy.model_validate({"rules": {"silent": {"limit": limit, "ceiling": ceiling}}})
    for by_s in extensions:
        try:
            policy = extend(policy, "silent", by_s, left_s=1e9)
        except Refusal:
            continue
        assert policy.rules.silent is not None
        assert policy.rules.silent.limit <= ceiling
