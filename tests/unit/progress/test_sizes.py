"""Agents pay for every byte that they read: how large a snapshot of a usual build is."""

from functools import reduce

from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.supervisor_events import BuildEvent
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

STATIC = {
    "label",
    "policy",
    "backend",
    "device",
    "model",
    "output",
    "created_at",
    "queue_s",
    "phases",
    "phases_left_out",
    "options",
    "versions",
    "warnings",
}


def size(told: Snapshot) -> int:
    return len(told.model_dump_json(exclude_none=True).encode())


def test_snapshots_of_a_usual_build_are_small(
    facts: BuildFacts, usual_build: list[BuildEvent]
) -> None:
    view = BuildView()
    largest = dict.fromkeys(Detail, 0)
    beside_the_line = 0
    for event in usual_build:
        view = fold(view, event)
        for detail in Detail:
            told = snapshot(facts, view, event.at + 0.05, detail)
            largest[detail] = max(largest[detail], size(told))
            if detail is Detail.SUMMARY:
                beside_the_line = max(beside_the_line, size(told) - len(told.summary.encode()))
    for detail in Detail:
        print(f"largest {detail.value} of a usual build: {largest[detail]} bytes")
    print(f"largest summary without its line: {beside_the_line} bytes")
    assert largest[Detail.SUMMARY] <= 600
    assert beside_the_line <= 430
    assert largest[Detail.TREE] <= 4096


def test_an_answer_that_tells_what_is_left_is_small_too(
    facts: BuildFacts, usual_build: list[BuildEvent]
) -> None:
    largest = 0
    in_time = Estimate(14.2, 11.3, 18.1, 3, same=True)
    late = Estimate(6.5, 5.1, 7.9, 3, same=True)
    similar = Estimate(21.5, 11.5, 40.1, 12, same=False)
    for estimate in (in_time, late, similar):
        view = BuildView()
        for event in usual_build:
            view = fold(view, event)
            told = snapshot(facts, view, event.at + 0.05, estimate=estimate)
            text_and_structure = told.summary + told.model_dump_json(exclude_none=True)
            largest = max(largest, len(text_and_structure.encode()))
    print(f"largest summary with an estimate, text and structure: {largest} bytes")
    assert largest <= 600


def test_each_detail_adds_to_the_one_before(
    facts: BuildFacts, usual_build: list[BuildEvent]
) -> None:
    view = reduce(fold, usual_build, BuildView())
    told = {
        detail: set(snapshot(facts, view, 20.0, detail).model_dump(exclude_none=True))
        for detail in Detail
    }
    assert told[Detail.SUMMARY].isdisjoint(STATIC)
    assert told[Detail.TREE] - told[Detail.SUMMARY] == (
        STATIC - {"phases_left_out", "options", "versions", "warnings"}
    )
    assert told[Detail.FULL] - told[Detail.TREE] == {"options", "versions", "warnings"}
