"""What judging a build costs: python -m tests.benchmarks.evaluate_cost.

A build is judged by a full policy: every rule that applies to a build at work is on, and its session has
a budget. Figures are processor time.
"""

from collections.abc import Callable

from tests.benchmarks.fold_cost import USUAL, begun, seconds
from tests.benchmarks.harness import Row, print_table
from trt_agent_tools.model.events import Heartbeat, PhaseStarted, StepCompleted, WorkerEvent
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.supervisor_events import ActivitySampled
from trt_agent_tools.policy.evaluate import Judged, evaluate
from trt_agent_tools.policy.ledger import Account, reserve
from trt_agent_tools.policy.observation import observe
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.policy.replay import replay
from trt_agent_tools.progress.reducer import fold

LIMITS: dict[str, object] = {
    "queue_time": "4h",
    "startup_time": "10m",
    "build_time": {"limit": "2h", "ceiling": "8h"},
    "gpu_time": "2h",
    "step_stall": "2m",
    "silent": {"limit": "1h", "mode": "observe"},
    "phase_time": {"Timing tactics": "1h", "Building engine, part 0 > **": "1h"},
    "projected_overrun": 1.5,
    "unattended": "1h",
    "host_memory": "64GiB",
    "gpu_memory": "64GiB",
}
NEAR: dict[str, object] = {**LIMITS, "build_time": 2.2, "gpu_time": 2.2, "silent": 1.8}
NOW = 2.0
EVALUATE_HZ = 5
"""How often the supervisor judges a build."""
REPEAT = 2000
ROUNDS = 7


def each_us(work: Callable[[], object]) -> float:
    """Return the microseconds of one call, the least of some rounds: others use this machine too."""

    def many() -> None:
        for _ in range(REPEAT):
            work()

    return min(seconds(many) for _ in range(ROUNDS)) / REPEAT * 1e6


def an_hour() -> list[WorkerEvent]:
    """Return a build of an hour: 30 steps and a heartbeat a second."""
    events: list[WorkerEvent] = [PhaseStarted(0.5, 1, "Building engine", 1 << 30)]
    for second in range(1, 3601):
        at = float(second)
        events.append(Heartbeat(at, second, at, cpu_s=at))
        events += [StepCompleted(at + part / 300, 1, 30 * second + part) for part in range(1, 31)]
    return events


def main() -> None:
    """Print the table."""
    sample = ActivitySampled(1.9, True, 98.0, 3 << 30, gpu_percent=40.0, gpu_memory_bytes=1 << 30)
    view = fold(begun(USUAL), sample)
    policy, near = (Policy.model_validate({"rules": rules}) for rules in (LIMITS, NEAR))
    account = reserve(Account(3600.0, 20.0), "b_1", 0.0, at_most_s=7200.0)
    estimate = Progress(basis=Basis.HISTORY, fraction=0.1, eta_s=600.0)

    def judge(policy: Policy = policy) -> tuple[Judged, ...]:
        seen = observe(view, NOW, attended_at=1.0, estimate=estimate)
        return evaluate(seen, policy, account, NOW)

    judged = judge()
    seen = observe(view, NOW, attended_at=1.0, estimate=estimate)
    whole = each_us(judge)
    shown = each_us(lambda: [(item.use, item.verdict) for item in judge()])
    events = an_hour()
    timeline = replay(policy, events)
    rows = [
        Row("observe and evaluate", whole, "us", 50, 1, f"{len(judged)} limits judged"),
        Row("- observe", each_us(lambda: observe(view, NOW, estimate=estimate)), "us", None, 1),
        Row("- evaluate", each_us(lambda: evaluate(seen, policy, account, NOW)), "us", None, 1),
        Row("and every limit's use and verdict", shown, "us", None, 1),
        Row(
            "the same with three limits near or past their end",
            each_us(lambda: [(item.use, item.verdict) for item in judge(near)]),
            "us",
            None,
            1,
        ),
        Row(
            f"200 builds, judged {EVALUATE_HZ} times a second and shown",
            shown * 200 * EVALUATE_HZ / 1e6,
            "cores",
            0.5,
        ),
        Row(
            "replay of an hour",
            min(seconds(lambda: replay(policy, events)) for _ in range(3)),
            "s",
            1.0,
            2,
            f"{len(events)} events, {timeline.evaluated} evaluations",
        ),
    ]
    print_table("Judging a build under a full policy", rows)


if __name__ == "__main__":
    main()
