import io
import json
import re

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from trt_agent_tools.cli.changes import PhaseChange, new_entries, phase_changes
from trt_agent_tools.cli.display import JsonLines, PlainLines, outcome_lines, print_error
from trt_agent_tools.cli.live import LiveView, render
from trt_agent_tools.cli.tree import tree_lines
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.snapshot import Phase, PhaseStatus, Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Level, LimitUse, Rule, Verdict

RUNNING = PhaseStatus.RUNNING
FINISHED = PhaseStatus.FINISHED
STOPPED = PhaseStatus.STOPPED
RESULT = {"engine": "/m/a.engine", "bytes": 7, "sha256": "f" * 64, "manifest": "/m/a.engine.json"}


def phase(
    name: str,
    status: PhaseStatus,
    *children: Phase,
    took: float = 1.0,
    done: int = 0,
    total: int = 1,
) -> Phase:
    return Phase(
        name=name,
        origin=Origin.TENSORRT,
        status=status,
        steps_done=done,
        steps_total=total,
        elapsed_s=took,
        children=list(children),
    )


def snapshot(
    *phases: Phase, state: State = State.BUILDING, at: float = 1.0, seq: int = 1, **others: object
) -> Snapshot:
    return Snapshot.model_validate(
        {
            "build_id": "b1",
            "seq": seq,
            "state": state,
            "summary": "b1 building 1.0s",
            "elapsed_s": at,
            "model": "/models/resnet.onnx",
            "phases": list(phases),
            **others,
        }
    )


def verdict(rule: Rule, action: Action, message: str) -> Verdict:
    return Verdict(
        rule=rule,
        action=action,
        threshold=3.0,
        observed={rule.value: 2.5},
        seq=1,
        at_s=1.0,
        message=message,
    )


def near(rule: Rule, level: Level = Level.WARNED, **others: object) -> LimitUse:
    values = {"rule": rule, "level": level, "used_s": 2.5, "limit_s": 3.0, **others}
    return TypeAdapter(LimitUse).validate_python(values)


def plain(*snapshots: Snapshot) -> list[str]:
    stream = io.StringIO()
    display = PlainLines(stream)
    for shown in snapshots:
        display.update(shown)
    return stream.getvalue().splitlines()


def drawn(shown: Snapshot, *, width: int = 100, height: int = 30) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(render(shown, height))
    return capture.get().splitlines()


# What changed


def test_only_the_innermost_of_nested_beginnings_is_told() -> None:
    now = [phase("build", RUNNING, phase("graph", RUNNING, phase("tactics", RUNNING)))]

    assert phase_changes([], now) == ([PhaseChange("build > graph > tactics", None)], 0)


def test_a_phase_that_was_told_to_begin_is_told_to_finish_after_those_inside_it() -> None:
    before = [phase("build", RUNNING, phase("graph", RUNNING))]
    now = [phase("build", FINISHED, phase("graph", FINISHED, took=2.0), took=3.0)]

    assert phase_changes(before, now) == (
        [PhaseChange("build > graph", 2.0), PhaseChange("build", 3.0)],
        0,
    )


def test_nothing_is_told_twice() -> None:
    now = [phase("parse", FINISHED), phase("build", RUNNING, phase("graph", FINISHED))]

    assert phase_changes(now, now) == ([], 0)


def test_brief_phases_are_counted_and_longer_ones_told() -> None:
    now = [phase("a", FINISHED, took=0.01), phase("b", FINISHED, took=0.01), phase("c", FINISHED)]

    assert phase_changes([], now) == ([PhaseChange("c", 1.0)], 2)


def test_the_second_of_two_phases_of_one_name_is_told() -> None:
    before = [phase("reformat", FINISHED)]
    now = [phase("reformat", FINISHED), phase("reformat", RUNNING)]

    assert phase_changes(before, now) == ([PhaseChange("reformat", None)], 0)


def test_a_running_phase_is_not_told_again_when_older_ones_are_dropped() -> None:
    before = [phase("x", FINISHED), phase("x", FINISHED), phase("x", RUNNING)]
    now = [phase("x", FINISHED), phase("x", RUNNING)]

    assert phase_changes(before, now) == ([], 0)


def test_a_phase_that_the_end_of_the_build_stopped_is_not_told_to_finish() -> None:
    before = [phase("build", RUNNING)]

    assert phase_changes(before, [phase("build", STOPPED)]) == ([], 0)


def test_notes_are_told_once_also_when_the_oldest_are_dropped() -> None:
    assert list(new_entries([], ["a"])) == ["a"]
    assert list(new_entries(["a", "b"], ["a", "b"])) == []
    assert list(new_entries(["a", "b"], ["b", "c"])) == ["c"]
    assert list(new_entries(["a"], ["x", "y"])) == ["x", "y"]


# Plain lines


def test_plain_output_has_a_line_for_each_change_and_none_without() -> None:
    building = snapshot(phase("build", RUNNING), at=0.9)
    lines = plain(
        snapshot(state=State.QUEUED, at=0.0),
        snapshot(state=State.STARTING, at=0.2),
        building,
        building,
        snapshot(phase("build", FINISHED, took=4.0), at=5.0, notes=["kept"]),
        snapshot(state=State.CANCELLING, reason=Reason.USER_REQUEST, at=5.5),
    )

    assert lines == [
        "    0.0s  queued",
        "    0.2s  starting",
        "    0.9s  building",
        "    0.9s  started   build",
        "    5.0s  finished  build  (4.0s)",
        "    5.0s  note      kept",
        "    5.5s  cancelling (user_request)",
    ]


def test_brief_phases_alone_make_no_line() -> None:
    one = phase("a", FINISHED, took=0.0)
    two = phase("b", FINISHED, took=0.0)

    lines = plain(snapshot(), snapshot(one), snapshot(one, two, phase("c", RUNNING)))

    assert [line[10:] for line in lines] == [
        "building",
        "finished  2 brief phases",
        "started   c",
    ]


def test_a_long_silence_is_broken_once_a_minute_with_the_summary() -> None:
    lines = plain(*[snapshot(at=float(at)) for at in range(130)])

    assert len(lines) == 3
    assert lines[1:] == ["   1m00s  b1 building 1.0s", "   2m00s  b1 building 1.0s"]


def test_each_verdict_makes_one_line_before_what_it_leads_to() -> None:
    warned = verdict(Rule.BUILD_TIME, Action.WARNED, "the build has run for 2.5s of at most 3.0s")
    ended = verdict(Rule.BUILD_TIME, Action.CANCEL, "the build has run for 3.1s of at most 3.0s")
    lines = plain(
        snapshot(at=1.0),
        snapshot(at=2.5, verdicts=[warned]),
        snapshot(at=2.7, verdicts=[warned]),
        snapshot(
            at=3.1,
            state=State.CANCELLING,
            reason=Reason.BUILD_TIME,
            verdicts=[warned, ended],
        ),
    )

    assert lines[1:] == [
        "    2.5s  warning   build_time: the build has run for 2.5s of at most 3.0s",
        "    3.1s  exceeded  build_time: the build has run for 3.1s of at most 3.0s",
        "    3.1s  cancelling (build_time)",
    ]


def test_what_an_agent_would_call_is_not_told_to_a_person() -> None:
    told = verdict(Rule.BUILD_TIME, Action.WARNED, "it has run; extend_build can raise it to 2h00m")
    late = snapshot(at=70.0, verdicts=[told], summary="b1 building; extend_build can raise it")

    lines = plain(snapshot(verdicts=[told]), late)

    assert [line[10:] for line in lines] == [
        "warning   build_time: it has run",
        "building",
        "b1 building",
    ]


def test_no_control_character_of_a_model_reaches_plain_output() -> None:
    evil = "\x1b[2Jtensor\r\nforged\u202e"
    stream = io.StringIO()
    display = PlainLines(stream)

    display.update(snapshot(phase(evil, RUNNING), notes=[evil]))
    display.say(evil)
    display.finish(snapshot(state=State.SUCCEEDED, result={**RESULT, "engine": evil}, notes=[evil]))

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", stream.getvalue())
    assert "\nforged" not in stream.getvalue()


def test_the_end_names_the_engine_its_size_and_its_digest() -> None:
    lines = list(outcome_lines(snapshot(state=State.SUCCEEDED, at=3.0, result=RESULT)))

    assert lines == [
        "succeeded after 3.0s",
        "engine    /m/a.engine",
        "bytes     7",
        f"sha256    {'f' * 64}",
        "manifest  /m/a.engine.json",
    ]


def test_the_end_of_a_cancelled_build_names_reason_and_rung() -> None:
    final = snapshot(
        state=State.CANCELLED, at=3.0, reason=Reason.USER_REQUEST, ended_by=Rung.TERMINATE
    )

    assert list(outcome_lines(final)) == ["cancelled (user_request), ended by terminate after 3.0s"]


def test_the_end_of_a_build_over_its_limit_names_what_to_try_next() -> None:
    proposals = [
        {"change": {"limits": {"build_time": "25m"}}, "why": "It takes 20m.", "expected_s": 1200.0},
        {"change": {"builder_optimization_level": 1}, "why": "It times less."},
    ]
    final = snapshot(state=State.CANCELLED, reason=Reason.BUILD_TIME, proposals=proposals)

    assert list(outcome_lines(final))[1:] == [
        "try       build_time 25m: It takes 20m.",
        "try       builder_optimization_level 1: It times less.",
    ]


def test_an_error_goes_to_standard_error_with_its_code_and_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(ErrorInfo(ErrorCode.MODEL_EMPTY, "it has\x1b[2J no bytes", "export it again"))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: model_empty: it has no bytes\nhint: export it again\n"


def test_a_hint_that_names_a_tool_s_argument_names_the_command_s_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(ErrorInfo(ErrorCode.OUTPUT_EXISTS, "there", 'options {"overwrite": true}'))

    assert "--overwrite" in capsys.readouterr().err


# JSON lines


def test_json_has_a_line_for_each_change_and_always_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = io.StringIO()
    display = JsonLines(stream)
    final = snapshot(state=State.SUCCEEDED, seq=2, result=RESULT)

    display.update(snapshot(seq=1))
    display.update(snapshot(seq=1, at=2.0))
    display.say("words for a person")
    display.update(final)
    display.finish(final)

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 2]
    assert Snapshot.model_validate(lines[-1]) == final
    assert "queue_s" not in lines[0]
    assert capsys.readouterr().err == "words for a person\n"


# The live view


def test_running_phases_are_nested_bars_and_finished_ones_one_line() -> None:
    shown = drawn(
        snapshot(
            phase("parse", FINISHED, phase("inside", FINISHED), took=0.3),
            phase("build", RUNNING, phase("tactics", RUNNING, done=2, total=5), done=1, total=6),
        )
    )

    header, parse, build, tactics = (line.split() for line in shown)
    assert header == ["resnet.onnx", "building", "1.0s"]
    assert parse == ["✓", "parse", "0.3s"]
    assert build[:2] == ["▸", "build"]
    assert build[-2:] == ["1/6", "1.0s"]
    assert tactics[-2:] == ["2/5", "1.0s"]
    assert shown[3].startswith("  ▸ tactics")


def test_silence_is_shown_beside_the_innermost_phase_with_the_work_done() -> None:
    shown = drawn(
        snapshot(
            phase("build", RUNNING, phase("refit", RUNNING)),
            quiet_s=7.1,
            activity={"busy": True, "cpu_percent": 101.0, "rss_bytes": 1},
        )
    )

    assert shown[2].rstrip().endswith("quiet 7.1s, CPU 101 %")
    assert "quiet" not in shown[1]


def test_a_lively_build_shows_no_silence() -> None:
    assert not any("quiet" in line for line in drawn(snapshot(phase("a", RUNNING), quiet_s=0.4)))


def test_many_finished_phases_become_one_line() -> None:
    shown = drawn(snapshot(*[phase(f"p{i}", FINISHED) for i in range(50)], phase("q", RUNNING)))

    assert len(shown) == 7
    assert "46 more" in shown[1]
    assert "q" in shown[-1]


@pytest.mark.parametrize("height", [3, 8, 12, 24])
def test_the_drawing_fits_the_terminal_and_keeps_the_innermost_phase(height: int) -> None:
    deep = phase("innermost", RUNNING)
    for level in range(20):
        deep = phase(f"level{level}", RUNNING, phase("done", FINISHED), deep)

    shown = drawn(snapshot(deep), height=height)

    assert len(shown) <= max(height - 2, 6)
    assert "innermost" in shown[-1]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_keeps_steps_and_times_and_wraps_nothing(width: int) -> None:
    shown = drawn(
        snapshot(phase("a rather long name of a phase " * 3, RUNNING, done=3, total=30)),
        width=width,
    )

    assert len(shown) == 2
    assert shown[1].split()[-2:] == ["3/30", "1.0s"]


def test_a_name_that_looks_like_markup_is_shown_as_it_is() -> None:
    assert "[red]x[/red]" in drawn(snapshot(phase("[red]x[/red]", RUNNING)))[1]


def test_a_fraction_is_shown_with_what_it_rests_on() -> None:
    shown = drawn(snapshot(progress={"basis": "steps", "fraction": 0.42}))

    assert "42% by steps" in shown[0]


def test_limits_near_their_end_are_lines_of_the_live_view_and_others_are_not() -> None:
    limits = [
        near(Rule.GPU_TIME, Level.OK),
        near(Rule.BUILD_TIME),
        near(Rule.SILENT, Level.EXCEEDED, used_s=3.5, observed_only=True),
    ]

    shown = drawn(snapshot(phase("a", RUNNING), limits=limits))

    assert shown[1:3] == [
        "! exceeded: silent 3.5s of 3.0s (only observed)",
        "! warned: build_time 2.5s of 3.0s",
    ]
    assert "▸ a" in shown[3]
    assert not any("gpu_time" in line for line in shown)


def test_limits_take_their_room_from_the_phases_and_the_innermost_one_stays() -> None:
    deep = phase("innermost", RUNNING)
    for level in range(20):
        deep = phase(f"level{level}", RUNNING, deep)

    shown = drawn(snapshot(deep, limits=[near(rule) for rule in Rule]), height=12)

    assert len(shown) <= 10
    assert sum(line.startswith("! ") for line in shown) == 3
    assert "innermost" in shown[-1]


def test_closing_the_live_view_gives_the_cursor_back() -> None:
    stream = io.StringIO()
    view = LiveView(Console(file=stream, force_terminal=True, width=80))

    view.update(snapshot(phase("a", RUNNING)))
    view.say("a word")
    view.close()
    view.close()

    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")
    assert "a word" in stream.getvalue()


# The tree at the end


def test_the_tree_tells_steps_times_and_what_was_stopped() -> None:
    lines = list(
        tree_lines(
            [
                phase("parse", FINISHED, took=0.01),
                phase("build", STOPPED, phase("graph", FINISHED, done=3, total=3), total=6),
            ],
            shortest_s=0.1,
        )
    )

    assert [line.split() for line in lines] == [
        ["build", "0/6", "1.0s", "stopped"],
        ["graph", "3/3", "1.0s"],
        ["and", "1", "under", "0.1s"],
    ]
