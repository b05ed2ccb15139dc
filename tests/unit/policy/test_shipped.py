"""The shipped policies: what each promises about healthy and hung builds, and that editors know them."""

import json
import re
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.unit.policy.builds import tensorrt_build
from trt_agent_tools.model.states import State
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.policy.evaluate import evaluate
from trt_agent_tools.policy.files import load_policy, shipped_folder
from trt_agent_tools.policy.observation import observe
from trt_agent_tools.policy.policy import Mode, Policy, PolicyFile, TimeRule
from trt_agent_tools.policy.replay import replay
from trt_agent_tools.policy.schema import SCHEMA_FILE, policy_schema
from trt_agent_tools.progress.view import BuildView

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = sorted(path.stem for path in shipped_folder().glob("*.toml"))
HOUR = 3600.0


def shipped(name: str) -> Policy:
    return load_policy(str(shipped_folder() / f"{name}.toml"))


def ends(name: str, *, silent_s: float, busy: bool) -> tuple[Rule, float] | None:
    """Return by which rule, and after how much silence, a build with one long silence is ended."""
    ended = replay(shipped(name), tensorrt_build(silent_s=silent_s, busy=busy)).ended
    return None if ended is None else (ended.rule, ended.at_s - 1.0)


def test_there_are_four() -> None:
    assert SHIPPED == ["ci", "default", "interactive", "overnight"]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("silent_s", [20.0, 110.0, 500.0])
def test_no_shipped_policy_ends_a_healthy_build_for_being_silent(
    name: str, silent_s: float
) -> None:
    timeline = replay(shipped(name), tensorrt_build(silent_s=silent_s, busy=True))
    assert timeline.ended is None
    assert timeline.recorded.outcome is not None


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_ends_a_hung_build_within_minutes(name: str) -> None:
    ended = ends(name, silent_s=2 * HOUR, busy=False)
    assert ended is not None
    rule, after_s = ended
    assert rule is Rule.STEP_STALL
    assert 60 <= after_s <= 601


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_ends_a_build_that_is_busy_for_ever(name: str) -> None:
    ended = ends(name, silent_s=11 * HOUR, busy=True)
    assert ended is not None
    assert ended[0] is Rule.BUILD_TIME
    assert ended[1] <= 10 * HOUR


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_bounds_the_queue_the_start_and_the_build(name: str) -> None:
    rules = shipped(name).rules
    for said in (rules.queue_time, rules.startup_time, rules.build_time, rules.step_stall):
        assert said is not None
        assert said.mode is Mode.ENFORCE


@pytest.mark.parametrize("name", SHIPPED)
def test_silence_and_estimates_end_nothing_in_a_shipped_policy(name: str) -> None:
    rules = shipped(name).rules
    for said in (rules.silent, rules.projected_overrun):
        assert said is not None
        assert said.mode is Mode.OBSERVE


@pytest.mark.parametrize("name", SHIPPED)
def test_a_build_that_nobody_asks_about_goes_to_the_end_only_overnight(name: str) -> None:
    asked_last = 2 * HOUR - 0.1
    forgotten = evaluate(observe(BuildView(), asked_last), shipped(name))
    ended = [item.rule for item in forgotten if item.action is Action.CANCEL]
    assert (Rule.UNATTENDED in ended) == (name != "overnight")


@pytest.mark.parametrize("name", ["default", "interactive"])
def test_an_agent_that_asks_every_minute_is_attending(name: str) -> None:
    view = BuildView()
    assert view.state is State.QUEUED
    found = evaluate(observe(view, 599.0, attended_at=539.0), shipped(name))
    assert all(item.rule is not Rule.UNATTENDED or item.used == 60.0 for item in found)
    assert all(item.action is not Action.CANCEL for item in found)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_ceiling_can_be_reached_with_the_extensions_of_a_session(name: str) -> None:
    policy = shipped(name)
    said = policy.rules.build_time
    assert said is not None
    room = (said.ceiling or said.limit) - said.limit
    assert policy.session.extension_total >= room
    assert (policy.session.extension_total > 0) == (room > 0)
    for rule in Rule:
        limit = policy.rule(rule)
        if room == 0 and isinstance(limit, TimeRule):
            assert limit.ceiling is None


@pytest.mark.parametrize("name", SHIPPED)
def test_an_end_takes_less_than_a_minute_whatever_the_builder_does(name: str) -> None:
    patience = shipped(name).escalation
    assert patience.cancel_grace + patience.terminate_grace <= 45


def test_the_default_policy_keeps_its_graces() -> None:
    patience = shipped("default").escalation
    assert (patience.cancel_grace, patience.terminate_grace) == (5.0, 5.0)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_has_its_reason_in_a_comment_above_it(name: str) -> None:
    lines = (shipped_folder() / f"{name}.toml").read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+ = ", line) and not line.startswith("description"):
            assert lines[number - 1].startswith("# "), line


# The schema


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((shipped_folder() / f"{name}.toml").read_text("utf-8"))


def is_valid(content: object) -> bool:
    return bool(Draft202012Validator(policy_schema()).is_valid(content))


def test_the_schema_beside_the_policies_is_up_to_date() -> None:
    kept = json.loads((shipped_folder() / SCHEMA_FILE).read_text("utf-8"))
    assert kept == policy_schema(), (
        "write it again: trt-agent-tools policy schema > policies/policy.schema.json"
    )


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(policy_schema())


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_follows_the_schema_and_names_it(name: str) -> None:
    assert list(Draft202012Validator(policy_schema()).iter_errors(toml(name))) == []
    first = (shipped_folder() / f"{name}.toml").read_text("utf-8").splitlines()[0]
    assert first == f"#:schema ./{SCHEMA_FILE}"


TAKEN: list[dict[str, Any]] = [
    {},
    {"rules": {"silent": "2h"}},
    {"rules": {"silent": 90}},
    {"rules": {"silent": {"limit": "1h30m", "mode": "observe", "warn_at": 0.5, "ceiling": 7200}}},
    {"rules": {"phase_time": {"Building > **": "5m", "Timing*": {"limit": 60}}}},
    {"rules": {"host_memory": "16GiB", "gpu_memory": {"limit": 1024}}},
    {"rules": {"projected_overrun": 1.5}},
    {"escalation": {"cancel_grace": "500ms", "terminate_grace": 0}},
    {"session": {"gpu_time": "10h", "concurrent_builds": 2, "extension_total": "0s"}},
]
REFUSED: list[dict[str, Any]] = [
    {"name": "x"},
    {"rulez": {}},
    {"rules": {"build_tme": "2h"}},
    {"rules": {"silent": "2 years"}},
    {"rules": {"silent": -1}},
    {"rules": {"silent": 0}},
    {"rules": {"silent": 1e9}},
    {"rules": {"silent": True}},
    {"rules": {"silent": {"mode": "observe"}}},
    {"rules": {"silent": {"limit": "1h", "mode": "off"}}},
    {"rules": {"silent": {"limit": "1h", "warn_at": 1}}},
    {"rules": {"host_memory": "lots"}},
    {"rules": {"projected_overrun": 0.5}},
    {"rules": {"phase_time": {"a": {"limit": "1h", "ceiling": "2h"}}}},
    {"escalation": {"cancel_grace": 1e9}},
    {"session": {"concurrent_builds": 0}},
]


@pytest.mark.parametrize("content", TAKEN, ids=str)
def test_what_a_policy_may_say_an_editor_takes(content: dict[str, Any]) -> None:
    assert is_valid(content)
    PolicyFile.model_validate(content)


@pytest.mark.parametrize("content", REFUSED, ids=str)
def test_what_a_policy_may_not_say_an_editor_marks(content: dict[str, Any]) -> None:
    assert not is_valid(content)
    with pytest.raises(ValueError, match="validation error"):
        PolicyFile.model_validate(content)


def test_an_editor_is_told_what_each_rule_is() -> None:
    described = policy_schema()["$defs"]
    assert isinstance(described, dict)
    rules = described["Rules"]
    assert isinstance(rules, dict)
    properties = rules["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {rule.value for rule in Rule} - {Rule.GPU_BUDGET.value}
    assert all(isinstance(each, dict) and each["description"] for each in properties.values())
