"""What a build's progress rests on does not change under its readers' eyes, and never goes back."""

from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from tests.unit.build_orders import build_order
from trt_agent_tools.model.events import Origin, PhaseStarted, StepCompleted
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import BuildEvent, Noted, StateChanged, VerdictGiven
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.progress.past import Estimate, Setting, Wanted
from trt_agent_tools.progress.view import BuildFacts
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.estimates.outlook import Outlook
from trt_agent_tools.supervisor.observer import Observers
from trt_agent_tools.supervisor.sessions import OpenSession

pytestmark = pytest.mark.anyio

ESTIMATE = Estimate(10.0, 8.0, 12.0, 3, same=True)
NOTHING = Outlook(Wanted(Setting("replay", "", "cpu"), None, None, None))
KNOWN = replace(NOTHING, estimate=ESTIMATE)
LONGER = replace(NOTHING, estimate=replace(ESTIMATE, total_s=40.0, high_s=60.0))


class NoJournal:
    async def tell(self, build: Build, event: StateChanged | Noted | VerdictGiven) -> str | None:
        """Write nothing."""
        del build, event
        return None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A build whose clock a test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        policy = Policy()
        order = build_order(folder)
        self.build = Build(
            facts=BuildFacts("b_1", None, "p", "replay", order.model, order.output, ""),
            request=StartRequest(model=order.model),
            order=order,
            policy=policy,
            session=OpenSession(owner="me", policy=policy),
            folder=folder,
            chronicle=NoJournal(),
            observers=Observers(()),
            clock=self.clock,
        )

    def tell(self, *events: BuildEvent) -> None:
        reduce(lambda _, event: self.build.record(event), events, None)

    def shown(self, at: float) -> Progress:
        self.clock.now = at
        progress = self.build.snapshot().progress
        assert progress is not None
        return progress


@pytest.fixture
async def scripted(tmp_path: Path) -> Scripted:
    made = Scripted(tmp_path)
    made.tell(StateChanged(0.0, State.STARTING))
    return made


def root(steps: int = 10) -> PhaseStarted:
    return PhaseStarted(1.0, 1, "Building engine", steps, origin=Origin.TENSORRT)


async def test_an_estimate_that_comes_before_tensorrt_begins_is_taken(scripted: Scripted) -> None:
    assert scripted.shown(0.5).basis is Basis.NONE
    scripted.build.expect(KNOWN)
    assert scripted.shown(0.6).basis is Basis.HISTORY


async def test_one_that_comes_a_moment_after_the_first_phase_was_shown_is_taken(
    scripted: Scripted,
) -> None:
    scripted.tell(root())
    assert scripted.shown(1.0).basis is Basis.STEPS
    scripted.build.expect(KNOWN)
    assert scripted.shown(1.1).basis is Basis.HISTORY


async def test_a_build_that_was_shown_by_its_steps_stays_so(scripted: Scripted) -> None:
    scripted.tell(root(), StepCompleted(1.1, 1, 4))
    assert scripted.shown(1.2).fraction == 0.5
    scripted.build.expect(KNOWN)
    assert scripted.shown(1.3) == Progress(basis=Basis.STEPS, fraction=0.5)
    assert scripted.build.expected(1.3) is None


async def test_an_estimate_that_nobody_has_seen_steps_before_is_taken(scripted: Scripted) -> None:
    scripted.tell(root(), StepCompleted(1.1, 1, 4))
    scripted.build.expect(KNOWN)
    assert scripted.shown(1.3).basis is Basis.HISTORY


async def test_a_better_estimate_changes_what_is_left_and_never_takes_back(
    scripted: Scripted,
) -> None:
    scripted.build.expect(KNOWN)
    scripted.tell(root())
    before = scripted.shown(5.0)
    scripted.build.expect(LONGER)
    after = scripted.shown(5.1)
    assert before.fraction is not None
    assert after.fraction is not None
    assert after.fraction >= before.fraction > 0.3
    assert before.eta_s is not None
    assert after.eta_s is not None
    assert after.eta_s > before.eta_s + 10


async def test_an_estimate_is_dropped_before_tensorrt_begins_and_not_later(
    scripted: Scripted,
) -> None:
    scripted.build.expect(KNOWN)
    scripted.build.expect(NOTHING)
    assert scripted.shown(0.5).basis is Basis.NONE
    scripted.build.expect(KNOWN)
    scripted.tell(root())
    scripted.build.expect(NOTHING)
    assert scripted.shown(1.5).basis is Basis.HISTORY


async def test_a_build_that_takes_much_longer_than_expected_is_never_said_to_be_done(
    scripted: Scripted,
) -> None:
    scripted.build.expect(KNOWN)
    scripted.tell(root())
    fractions = [scripted.shown(float(at)).fraction or 0.0 for at in range(1, 300, 7)]
    assert fractions == sorted(fractions)
    assert fractions[-1] <= 0.99


async def test_a_policy_is_told_what_is_expected(scripted: Scripted) -> None:
    assert scripted.build.expected(0.5) is None
    scripted.build.expect(KNOWN)
    expected = scripted.build.expected(0.5)
    assert expected is not None
    assert expected.basis is Basis.HISTORY
    assert expected.eta_s == pytest.approx(9.5, abs=0.5)
