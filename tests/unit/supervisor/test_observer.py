import logging

import pytest

from tests.unit.telemetry.scripted import ScriptedBuild
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.supervisor.observer import Observed, Observers


class Listening:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def accepted(self, build: Observed) -> None:
        self.heard.append(build.facts.build_id)

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        self.heard.append(f"{build.facts.build_id}: {type(event).__name__}")


class Broken(Listening):
    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        super().told(build, event)
        raise RuntimeError("out of order")


def test_an_observer_that_raises_is_dropped_and_the_others_hear_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, listening = Broken(), Listening()
    build = ScriptedBuild(Observers([broken, listening]))
    with caplog.at_level(logging.ERROR):
        build.note("one")
        build.note("two")
    assert broken.heard == ["b_1", "b_1: Noted"]
    assert listening.heard == ["b_1", "b_1: Noted", "b_1: Noted"]
    assert "Broken failed and is dropped" in caplog.text
