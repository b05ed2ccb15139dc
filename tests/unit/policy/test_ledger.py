"""The account of a session: what is spent is never lost, never counted twice, and bounded."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.events import Origin, PhaseStarted
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import StateChanged
from trt_agent_tools.model.verdict import Action, Level, Rule
from trt_agent_tools.policy.evaluate import evaluate
from trt_agent_tools.policy.ledger import Account, Reservation, reserve, settle
from trt_agent_tools.policy.observation import observe
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView

INTERVAL_S = 0.25
UNIT_S = 1 / 64


class Run(NamedTuple):
    """A build that would hold a device from `start` to `end`, on the account's clock."""

    name: str
    start: float
    end: float
    devices: int = 1


units = st.integers(0, 2000)


@st.composite
def runs(draw: st.DrawFn, at_most: int = 5) -> list[Run]:
    spans = draw(st.lists(st.tuples(units, st.integers(0, 1000)), max_size=at_most))
    return [
        Run(f"b_{number}", start * UNIT_S, (start + length) * UNIT_S)
        for number, (start, length) in enumerate(spans)
    ]


@dataclass
class Session:
    """Builds under one budget, supervised turn by turn; a build that its policy ends, ends at once."""

    account: Account
    ended: dict[str, float]
    running: dict[str, Run]
    most_running: int = 0
    most_over: float = 0.0

    def turn(self, now: float, waiting: list[Run]) -> None:
        for run in [run for run in self.running.values() if run.end <= now]:
            self.settle(run, run.end)
        for run in [run for run in waiting if run.start <= now]:
            waiting.remove(run)
            if self.account.left_s(now) != 0 and run.end > now:
                self.account = reserve(self.account, run.name, now, at_most_s=None)
                self.running[run.name] = run._replace(start=now)
        self.most_running = max(self.most_running, len(self.running))
        self.check(now)
        for run in list(self.running.values()):
            view = fold(BuildView(), StateChanged(0.0, State.STARTING))
            seen = observe(view, now - run.start)
            judged = evaluate(seen, Policy(), self.account, now)
            if any(item.action is Action.CANCEL for item in judged):
                self.settle(run, now)

    def settle(self, run: Run, now: float) -> None:
        self.account = settle(self.account, run.name, now)
        self.ended[run.name] = now - run.start
        del self.running[run.name]

    def check(self, now: float) -> None:
        used, reserved = self.account.used_s(now), self.account.reserved_s(now)
        assert self.account.budget_s is not None
        assert used + reserved <= max(used, self.account.budget_s)
        self.most_over = max(self.most_over, used - self.account.budget_s)


@given(runs(), st.integers(1, 2000))
def test_a_budget_is_overdrawn_by_one_interval_of_its_builds_at_most(
    builds: list[Run], budget: int
) -> None:
    session = Session(Account(budget * UNIT_S), {}, {})
    waiting = list(builds)
    turn = 0
    while waiting or session.running:
        session.turn(turn * INTERVAL_S, waiting)
        turn += 1
    assert session.most_over <= session.most_running * INTERVAL_S
    assert session.account.spent_s == sum(session.ended.values())
    assert not session.account.running


@given(runs())
def test_the_ledger_is_the_sum_of_the_builds_device_time(builds: list[Run]) -> None:
    account = Account()
    for run in builds:
        account = reserve(account, run.name, run.start, at_most_s=None, devices=run.devices)
    for run in builds:
        account = settle(account, run.name, run.end)
    assert account == Account(spent_s=sum(run.end - run.start for run in builds))


@given(runs(at_most=4))
def test_the_ledger_ends_the_same_in_whatever_order_builds_end(builds: list[Run]) -> None:
    started = Account(100.0)
    for run in builds:
        started = reserve(started, run.name, run.start, at_most_s=None)
    found = set()
    for order in permutations(builds):
        account = started
        for run in order:
            account = settle(account, run.name, run.end)
        found.add((account.spent_s, account.left_s(1e6), account.reserved_s(1e6)))
    assert len(found) == 1


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=6))
def test_nothing_is_lost_to_rounding(spans: list[tuple[float, float]]) -> None:
    account = Account()
    for number, (start, length) in enumerate(spans):
        account = reserve(account, str(number), start, at_most_s=None)
        account = settle(account, str(number), start + length)
    exact = sum(Fraction(start + length) - Fraction(start) for start, length in spans)
    assert abs(account.spent_s - float(exact)) < 1e-6


def test_what_a_running_build_has_used_counts_as_spent() -> None:
    account = reserve(Account(100.0, 10.0), "b_1", 5.0, at_most_s=None)
    assert account.used_s(25.0) == 30.0
    assert account.left_s(25.0) == 70.0
    assert settle(account, "b_1", 25.0).used_s(1000.0) == 30.0


def test_reserving_or_settling_twice_changes_nothing() -> None:
    account = reserve(Account(100.0), "b_1", 5.0, at_most_s=10.0)
    assert reserve(account, "b_1", 50.0, at_most_s=None) is account
    settled = settle(account, "b_1", 8.0)
    assert settle(settled, "b_1", 60.0) is settled
    assert settle(settled, "b_none", 60.0) is settled


def test_a_build_that_ends_before_it_began_costs_nothing() -> None:
    account = reserve(Account(100.0), "b_1", 5.0, at_most_s=None)
    assert settle(account, "b_1", 4.0).spent_s == 0.0


def test_time_is_charged_for_every_device_that_is_held() -> None:
    account = reserve(Account(100.0), "b_1", 0.0, at_most_s=None, devices=3)
    assert account.used_s(10.0) == 30.0
    assert settle(account, "b_1", 10.0).spent_s == 30.0


@pytest.mark.parametrize(
    ("running", "reserved"),
    [
        ({}, 0.0),
        ({"a": Reservation(0.0, 30.0)}, 20.0),
        ({"a": Reservation(0.0, 5.0)}, 0.0),
        ({"a": Reservation(0.0)}, 90.0),
        ({"a": Reservation(0.0, 30.0), "b": Reservation(0.0, 15.0)}, 25.0),
        ({"a": Reservation(0.0, 80.0), "b": Reservation(0.0, 80.0)}, 80.0),
        ({"a": Reservation(0.0, 30.0), "b": Reservation(0.0)}, 80.0),
    ],
)
def test_what_is_reserved_is_what_builds_may_still_use_and_never_more_than_is_left(
    running: Mapping[str, Reservation], reserved: float
) -> None:
    assert Account(100.0, running=running).reserved_s(10.0) == reserved


def test_without_a_budget_nothing_is_left_or_short() -> None:
    account = reserve(Account(), "b_1", 0.0, at_most_s=30.0)
    assert account.left_s(10.0) is None
    assert account.reserved_s(10.0) == 20.0


def test_a_budget_is_judged_before_every_rule_of_the_policy() -> None:
    view = fold(BuildView(), StateChanged(0.0, State.STARTING))
    view = fold(view, PhaseStarted(1.0, 1, "Building engine", 5, origin=Origin.TENSORRT))
    policy = Policy.model_validate({"rules": {"build_time": "5s", "gpu_time": "5s"}})
    account = reserve(Account(8.0), "b_1", 100.0, at_most_s=None)
    judged = evaluate(observe(view, 10.0), policy, account, 110.0)
    assert [item.rule for item in judged] == [Rule.GPU_BUDGET, Rule.GPU_TIME, Rule.BUILD_TIME]
    assert all(item.action is Action.CANCEL for item in judged)


def test_a_budget_is_warned_of_and_no_other_build_is_told() -> None:
    account = reserve(Account(10.0), "b_1", 0.0, at_most_s=None)
    view = fold(BuildView(), StateChanged(0.0, State.STARTING))
    (judged,) = evaluate(observe(view, 8.0), Policy(), account, 8.0)
    assert judged.level is Level.WARNED
    assert "session has used 8.0s of its 10.0s GPU time" in judged.verdict.message
    queued = observe(BuildView(), 8.0)
    assert evaluate(queued, Policy(), account, 8.0) == ()
    assert evaluate(observe(view, 8.0), Policy(), Account(10.0), 8.0)[0].level is Level.OK
