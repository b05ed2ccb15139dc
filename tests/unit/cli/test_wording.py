import re
from collections.abc import Callable, Mapping

import pytest
from pydantic import TypeAdapter

from trt_agent_tools.cli.wording import hint, limit_text, stop_text, verdict_text, without_tools
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Level, LimitUse, Rule, Verdict
from trt_agent_tools.policy.evaluate import evaluate
from trt_agent_tools.policy.ledger import Account
from trt_agent_tools.policy.limits import tighten
from trt_agent_tools.policy.observation import Observation, RunningPhase
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.supervisor.sessions import OpenSession, Sessions

TOOL = re.compile(r"_build\b|get_|list_builds|open_session|session_id|limits\.")
RULES: Mapping[str, object] = {
    "queue_time": "10s",
    "startup_time": "10s",
    "build_time": {"limit": "10s", "ceiling": "2h"},
    "gpu_time": {"limit": "10s", "ceiling": "2h"},
    "step_stall": "10s",
    "silent": "10s",
    "unattended": "10s",
    "phase_time": {"Timing": "10s"},
    "projected_overrun": 1.5,
    "host_memory": "1GiB",
    "gpu_memory": "1GiB",
}


def all_verdicts(share: float) -> list[Verdict]:
    """Return the verdict of every rule on a build that has used that share of every limit."""
    used = 10 * share
    seen = Observation(
        at=1.0,
        seq=1,
        state=State.BUILDING,
        queue_s=used,
        held_s=used,
        startup_s=used,
        quiet_s=used,
        inactive_s=used,
        unattended_s=used,
        projected_s=15 * share,
        rss_bytes=round(share * 2**30),
        gpu_memory_bytes=round(share * 2**30),
        phases=(RunningPhase(("Timing",), used),),
    )
    policy = Policy.model_validate({"rules": RULES})
    account = Account(budget_s=10.0, spent_s=used)
    return [item.verdict for item in evaluate(seen, policy, account, 0.0)]


@pytest.mark.parametrize("share", [0.9, 1.2])
def test_the_verdict_of_every_rule_is_told_without_naming_a_tool(share: float) -> None:
    verdicts = all_verdicts(share)

    assert {verdict.rule for verdict in verdicts} == set(Rule)
    for verdict in verdicts:
        text = verdict_text(verdict)
        assert text.startswith(f"{verdict.rule.value}: ")
        assert not TOOL.search(text.removeprefix(f"{verdict.rule.value}: ")), text


def test_an_exhausted_budget_is_told_with_what_a_person_can_do() -> None:
    (verdict,) = [v for v in all_verdicts(1.2) if v.rule is Rule.GPU_BUDGET]

    assert verdict_text(verdict) == (
        "gpu_budget: the session has used 12.0s of its 10.0s GPU time; "
        "choose a --policy that allows more GPU time"
    )


def test_only_whole_clauses_that_name_a_tool_are_left_out() -> None:
    assert without_tools("a; call get_log now; b") == "a; b"
    assert without_tools("phase extend_build runs; b") == "phase extend_build runs; b"
    assert without_tools("my_extend_builder; rebuild_x") == "my_extend_builder; rebuild_x"


def ask_for_more_than_the_policy_allows() -> None:
    tighten(Policy.model_validate({"rules": {"build_time": "1h"}}), {"build_time": "2h"})


def ask_for_more_than_the_session_has() -> None:
    OpenSession(owner="me", policy=Policy(), budget_s=10.0).check_room(60.0, 0.0)


def start_when_the_session_has_nothing_left() -> None:
    OpenSession(owner="me", policy=Policy(), budget_s=0.0).check_room(None, 0.0)


def name_an_unknown_session() -> None:
    Sessions(Policy()).find("s_none", "me")


@pytest.mark.parametrize(
    "refused",
    [
        ask_for_more_than_the_policy_allows,
        ask_for_more_than_the_session_has,
        start_when_the_session_has_nothing_left,
        name_an_unknown_session,
    ],
)
def test_the_hint_of_a_refused_limit_is_for_a_person_at_a_terminal(
    refused: Callable[[], None],
) -> None:
    with pytest.raises(Refusal) as caught:
        refused()

    told = hint(caught.value.info)
    assert told
    assert TOOL.search(caught.value.info.hint)
    assert not TOOL.search(told)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TOO_LATE, ErrorCode.WORKER_CRASHED, ErrorCode.BUILDER_ERROR],
)
def test_a_hint_that_tells_an_agent_to_call_a_tool_is_replaced(code: ErrorCode) -> None:
    assert not TOOL.search(hint(ErrorInfo(code, "it happened", "call get_log")))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('Use options {"refit": true}.', "Use --option refit='true'."),
        (
            'Give more: options {"memory_pool_limits": {"WORKSPACE": "4GiB"}}.',
            'Give more: --option memory_pool_limits=\'{"WORKSPACE": "4GiB"}\'.',
        ),
        ("Check the path.", "Check the path."),
    ],
)
def test_an_option_in_a_hint_is_written_as_on_the_command_line(given: str, told: str) -> None:
    assert hint(ErrorInfo(ErrorCode.OUT_OF_MEMORY, "m", given)) == told


def test_a_stopped_build_names_policy_rule_and_evidence() -> None:
    ending = [v for v in all_verdicts(1.2) if v.rule is Rule.BUILD_TIME]
    final = Snapshot(
        build_id="b1",
        seq=9,
        state=State.CANCELLED,
        reason=Reason.BUILD_TIME,
        summary="",
        elapsed_s=12.0,
        ended_by=Rung.ASK,
        policy="ci",
        verdicts=[*all_verdicts(0.9)[:2], *ending],
    )

    assert stop_text(final).startswith(
        "stopped by policy ci: build_time: the build has run for 12.0s of at most 10.0s; "
    )
    without = final.model_copy(update={"verdicts": None})
    assert stop_text(without) == "stopped by policy ci: build_time"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"used_s": 250.0, "limit_s": 3600.0}, "phase_time a > * 4m10s of 1h00m"),
        ({"used_bytes": 3 << 29, "limit_bytes": 4 << 30}, "phase_time a > * 1.50 of 4.00 GiB"),
        ({"used_ratio": 1.25, "limit_ratio": 1.5}, "phase_time a > * 1.25 of 1.5"),
        (
            {"used_s": 1.0, "limit_s": 2.0, "observed_only": True},
            "phase_time a > * 1.0s of 2.0s (only observed)",
        ),
    ],
)
def test_a_limit_is_told_in_its_own_unit(values: dict[str, object], text: str) -> None:
    use = {"rule": Rule.PHASE_TIME, "level": Level.WARNED, "phase": "a > *", **values}

    assert limit_text(TypeAdapter(LimitUse).validate_python(use)) == text


def test_actions_are_those_that_the_command_line_knows() -> None:
    assert {v.action for v in all_verdicts(0.9)} == {Action.WARNED}
    assert {v.action for v in all_verdicts(1.2)} == {Action.CANCEL}
