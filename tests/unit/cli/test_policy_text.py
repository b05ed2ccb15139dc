import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_agent_tools.cli.policy_text import (
    check_lines,
    duration_text,
    policy_toml,
    problem_lines,
    rules_off,
    size_text,
)
from trt_agent_tools.model.duration import MAX_S, parse_duration
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.options import parse_size
from trt_agent_tools.policy.files import known_policies, load_policy
from trt_agent_tools.policy.policy import (
    Escalation,
    Mode,
    PhaseRule,
    Policy,
    RatioRule,
    Rules,
    SessionLimits,
    SizeRule,
    TimeRule,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

whole = st.integers(1, int(MAX_S)).map(float)
seconds = whole | st.floats(0.001, MAX_S)
graces = st.just(0.0) | st.floats(1e-12, 3600)
shares = st.floats(0.001, 0.999)
modes = st.sampled_from(Mode)
warn_ats = st.none() | shares


@st.composite
def time_rules(draw: st.DrawFn) -> TimeRule:
    limit, other = draw(seconds), draw(seconds)
    ceiling = draw(st.sampled_from((None, max(limit, other))))
    return TimeRule(
        limit=min(limit, other), ceiling=ceiling, mode=draw(modes), warn_at=draw(warn_ats)
    )


sizes = st.builds(SizeRule, limit=st.integers(1, 1 << 50), mode=modes, warn_at=warn_ats)
ratios = st.builds(RatioRule, limit=st.floats(1, 100), mode=modes, warn_at=warn_ats)
phases = st.builds(PhaseRule, limit=seconds, mode=modes, warn_at=warn_ats)
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="[>"),
    min_size=1,
    max_size=20,
).filter(str.strip)
policies = st.builds(
    Policy,
    description=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    rules=st.builds(
        Rules,
        queue_time=st.none() | time_rules(),
        build_time=st.none() | time_rules(),
        silent=st.none() | time_rules(),
        phase_time=st.dictionaries(names, phases, max_size=3),
        projected_overrun=st.none() | ratios,
        host_memory=st.none() | sizes,
    ),
    escalation=st.builds(
        Escalation,
        warn_at=shares,
        cancel_grace=graces,
        terminate_grace=graces,
    ),
    session=st.builds(
        SessionLimits,
        gpu_time=st.none() | seconds,
        concurrent_builds=st.integers(1, 1024),
        queued_builds=st.integers(1, 1024),
        extension_total=st.just(0.0) | seconds,
        require_fit=st.booleans(),
    ),
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (45, "45s"),
        (60, "1m"),
        (90, "90s"),
        (900, "15m"),
        (3661, "1h1m1s"),
        (5400, "1h30m"),
        (86400, "24h"),
        (3 * 86400, "3d"),
    ],
)
def test_durations_are_written_as_people_write_them(number: float, text: str) -> None:
    assert duration_text(number) == text


@given(seconds | st.floats(1e-12, 1))
def test_a_duration_that_was_written_reads_back_exactly(number: float) -> None:
    assert parse_duration(duration_text(number)) == number


@given(st.integers(0, 1 << 50))
def test_a_size_that_was_written_reads_back_exactly(size: int) -> None:
    assert parse_size(size_text(size)) == size


def test_sizes_are_written_in_the_largest_unit_that_they_are_whole_in() -> None:
    assert size_text(16 << 30) == "16GiB"
    assert size_text(4_000_000_000) == "4GB"
    assert size_text(1025) == "1025B"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies)
def test_a_policy_that_was_shown_is_the_same_policy_as_a_file(
    tmp_path: Path, policy: Policy
) -> None:
    file = tmp_path / "shown.toml"
    file.write_text("\n".join(policy_toml(policy)), encoding="utf-8")

    assert load_policy(str(file)) == policy.model_copy(update={"name": "shown"})


@pytest.mark.parametrize("name", [policy.name for policy in known_policies() if policy.shipped])
def test_every_shipped_policy_is_shown_as_itself(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.toml"
    file.write_text("\n".join(policy_toml(load_policy(name))), encoding="utf-8")

    assert load_policy(str(file)) == load_policy(name)


def test_defaults_are_shown_and_what_is_off_is_said() -> None:
    text = "\n".join(policy_toml(Policy(rules=Rules.model_validate({"build_time": "2h"}))))

    assert tomllib.loads(text) == {
        "reuse": "verify",
        "description": "",
        "escalation": {"warn_at": 0.8, "cancel_grace": "5s", "terminate_grace": "5s"},
        "session": {
            "concurrent_builds": 1,
            "queued_builds": 32,
            "extension_total": "0s",
            "require_fit": False,
        },
        "rules": {"build_time": {"limit": "2h", "mode": "enforce"}},
    }
    assert "# gpu_time is not limited" in text
    assert re.search(r"# off: queue_time, .*phase_time", text)


def test_no_unseen_character_of_a_policy_reaches_the_terminal() -> None:
    evil = "\x1b[2J\x7f\x9b\u202e\u200b"
    policy = Policy.model_validate({"description": evil})

    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e\u200b]", "".join(policy_toml(policy)))


def test_a_check_tells_of_each_rule_its_limit_warning_ceiling_and_mode() -> None:
    rules = {
        "build_time": {"limit": "2h", "ceiling": "6h"},
        "silent": {"limit": "10m", "mode": "observe", "warn_at": 0.5},
        "phase_time": {"Timing tactics": "20m"},
    }
    policy = Policy.model_validate({"name": "mine", "rules": rules})

    lines = list(check_lines(policy))

    assert [" ".join(line.split()) for line in lines[:4]] == [
        "mine is valid",
        "build_time 2h, warned at 80%, may be extended to 6h",
        "silent 10m, warned at 50%, only observed",
        'phase_time "Timing tactics" 20m, warned at 80%',
    ]
    assert lines[4] == f"off: {', '.join(rules_off(policy))}"
    assert "gpu_time" in rules_off(policy)
    assert not {"build_time", "silent", "phase_time"} & set(rules_off(policy))


def test_every_problem_of_a_file_is_a_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[rules]\nbuild_time = "soon"\nbuild_tme = "1h"\n')

    with pytest.raises(Refusal) as caught:
        load_policy(str(file))
    first, second = problem_lines(caught.value.info)

    assert first.startswith(f"{file}: line 2: rules.build_time: ")
    assert second.startswith(f"{file}: line 3: rules.build_tme: ")
    assert "queue_time" in second
