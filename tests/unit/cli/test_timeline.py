import json

import pytest

from trt_agent_tools.cli.timeline import as_json_text, interval_s, timeline_lines
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Outcome
from trt_agent_tools.model.verdict import Action, Rule, Verdict
from trt_agent_tools.policy.replay import NotKnown, RecordedEnd, Timeline


def verdict(at_s: float, rule: Rule, action: Action, message: str) -> Verdict:
    return Verdict(rule, action, 10.0, {rule.value: at_s}, 1, at_s, message)


WARNED = verdict(9.6, Rule.SILENT, Action.WARNED, "no callback; extend_build can raise silent")
ENDED = verdict(12.3, Rule.BUILD_TIME, Action.CANCEL, "it has run for 12.3s")
SUCCEEDED = RecordedEnd(20.1, Outcome.SUCCEEDED)


def test_a_timeline_tells_time_rule_action_and_finding_and_then_what_it_comes_to() -> None:
    assert list(timeline_lines(Timeline((WARNED, ENDED), ENDED, SUCCEEDED))) == [
        "    9.6s  silent      warned  no callback",
        "   12.3s  build_time  cancel  it has run for 12.3s",
        "would have been cancelled at 12.3s by build_time; the recording succeeded at 20.1s",
    ]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (SUCCEEDED, "the recording succeeded at 20.1s"),
        (RecordedEnd(5.0, Outcome.FAILED), "the recording failed at 5.0s"),
        (RecordedEnd(5.0, Outcome.CANCELLED), "the recording was cancelled at 5.0s"),
        (RecordedEnd(5.0, None), "the recording stops at 5.0s without an end"),
    ],
)
def test_a_build_that_a_policy_lets_live_is_told_with_its_recorded_end(
    end: RecordedEnd, told: str
) -> None:
    assert list(timeline_lines(Timeline((), None, end))) == [
        f"would not have been cancelled; {told}"
    ]


def test_what_a_recording_cannot_tell_is_said() -> None:
    timeline = Timeline((), None, SUCCEEDED, (NotKnown(Rule.HOST_MEMORY, "it is not recorded"),))

    assert "not known: host_memory, because it is not recorded" in list(timeline_lines(timeline))


def test_no_control_character_of_a_recording_reaches_the_terminal() -> None:
    evil = verdict(1.0, Rule.SILENT, Action.WARNED, "phase \x1b[2Jx\nforged\u202e")

    for line in timeline_lines(Timeline((evil,), None, SUCCEEDED)):
        assert line.isprintable()


def test_json_is_the_whole_timeline() -> None:
    told = json.loads(as_json_text(Timeline((WARNED, ENDED), ENDED, SUCCEEDED, evaluated=7)))

    assert [v["rule"] for v in told["verdicts"]] == ["silent", "build_time"]
    assert told["ended"]["at_s"] == 12.3
    assert told["recorded"] == {"at_s": 20.1, "outcome": "succeeded"}
    assert told["evaluated"] == 7


def test_an_interval_is_a_duration() -> None:
    assert interval_s("250ms") == 0.25
    assert interval_s("2") == 2


@pytest.mark.parametrize("text", ["", "0", "-1s", "soon", "0.0001s", "nan", "²"])
def test_an_interval_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        interval_s(text)

    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert "--interval" in caught.value.info.message
