"""What Prometheus reads of builds, read by Prometheus's own parser."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import trt_agent_tools
from tests.unit.telemetry.scripted import ScriptedBuild
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.supervisor.observer import Condition, Observers
from trt_agent_tools.telemetry.metrics import BUILD_BUCKETS_S, Metrics

WELL = Condition(
    devices_free=1,
    devices_leased=0,
    devices_out_of_service=0,
    journal_failing=False,
    records_owed=0,
    builds_recovered=0,
)
DOCUMENT = Path(trt_agent_tools.__file__).parents[1] / "docs" / "telemetry.md"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraped:
    def __init__(self, metrics: Metrics, condition: Condition = WELL) -> None:
        self._families = list(
            text_string_to_metric_families(metrics.text(condition).decode("utf-8"))
        )

    def __call__(self, name: str, **labels: str) -> float | None:
        """Return the value of a series, None if there is none."""
        for family in self._families:
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def names(self) -> set[str]:
        """Return the names of all metrics as they are asked for, histograms without their endings."""
        return {
            f"{family.name}_total" if family.type == "counter" else family.name
            for family in self._families
        }

    def labels(self) -> set[str]:
        return {
            value
            for family in self._families
            for sample in family.samples
            for value in sample.labels.values()
        }


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def observers(metrics: Metrics) -> Observers:
    return Observers([metrics])


def test_builds_that_wait_and_run_are_counted_by_state(
    metrics: Metrics, observers: Observers
) -> None:
    ScriptedBuild(observers, "b_1")
    ScriptedBuild(observers, "b_2")
    ScriptedBuild(observers, "b_3").move(State.STARTING, at=1.0)
    seen = Scraped(metrics)
    assert seen("trt_builds", state="queued") == 2
    assert seen("trt_builds", state="starting") == 1
    assert seen("trt_builds", state="building") == 0


def test_ends_are_counted_with_their_reason_and_how_long_the_device_was_held(
    metrics: Metrics, observers: Observers
) -> None:
    for build_id, state, reason in (
        ("b_1", State.SUCCEEDED, Reason.COMPLETED),
        ("b_2", State.SUCCEEDED, Reason.COMPLETED),
        ("b_3", State.FAILED, Reason.BUILDER_ERROR),
    ):
        ScriptedBuild(observers, build_id).run(state, reason, queue_s=2.0, gpu_s=40.0)
    seen = Scraped(metrics)
    assert seen("trt_builds_ended_total", state="succeeded", reason="completed") == 2
    assert seen("trt_builds_ended_total", state="failed", reason="builder_error") == 1
    assert seen("trt_builds", state="building") == 0
    assert seen("trt_build_duration_seconds_sum", state="succeeded") == 80.0
    assert seen("trt_build_duration_seconds_bucket", state="succeeded", le="30.0") == 0
    assert seen("trt_build_duration_seconds_bucket", state="succeeded", le="60.0") == 2
    assert seen("trt_queue_wait_seconds_sum") == 6.0
    assert seen("trt_gpu_seconds_total") == 120.0


def test_a_build_that_leaves_the_queue_has_no_duration_and_no_wait(
    metrics: Metrics, observers: Observers
) -> None:
    build = ScriptedBuild(observers)
    build.move(State.CANCELLING, Reason.USER_REQUEST, at=3.0)
    build.move(State.CANCELLED, Reason.USER_REQUEST, at=3.0)
    seen = Scraped(metrics)
    assert seen("trt_builds_ended_total", state="cancelled", reason="user_request") == 1
    assert seen("trt_build_duration_seconds_count", state="cancelled") is None
    assert seen("trt_queue_wait_seconds_count") == 0
    assert seen("trt_gpu_seconds_total") == 0


def test_gpu_time_grows_while_a_build_runs_and_never_falls(
    metrics: Metrics, observers: Observers
) -> None:
    build = ScriptedBuild(observers)
    build.move(State.STARTING, at=10.0)
    build.at = 70.0
    assert Scraped(metrics)("trt_gpu_seconds_total") == 60.0
    # The end was at 69 s, and took a while to be written.
    build.move(State.SUCCEEDED, Reason.COMPLETED, at=69.0)
    assert Scraped(metrics)("trt_gpu_seconds_total") == 60.0
    ScriptedBuild(observers, "b_2").run(State.SUCCEEDED, Reason.COMPLETED, queue_s=0.0, gpu_s=11.0)
    assert Scraped(metrics)("trt_gpu_seconds_total") == 70.0


def test_verdicts_are_counted_by_rule_and_action(metrics: Metrics, observers: Observers) -> None:
    build = ScriptedBuild(observers)
    build.give(Rule.SILENT, Action.WARNED)
    build.give(Rule.SILENT, Action.CANCEL)
    seen = Scraped(metrics)
    assert seen("trt_verdicts_total", rule="silent", action="warned") == 1
    assert seen("trt_verdicts_total", rule="silent", action="cancel") == 1


def test_what_an_operator_is_woken_for_is_told(metrics: Metrics) -> None:
    ill = Condition(
        devices_free=0,
        devices_leased=2,
        devices_out_of_service=1,
        journal_failing=True,
        records_owed=7,
        builds_recovered=3,
    )
    seen = Scraped(metrics, ill)
    assert seen("trt_devices", state="out_of_service") == 1
    assert seen("trt_devices", state="leased") == 2
    assert seen("trt_devices", state="free") == 0
    assert seen("trt_journal_failing") == 1
    assert seen("trt_journal_owed_records") == 7
    assert seen("trt_builds_recovered") == 3
    assert Scraped(metrics)("trt_journal_failing") == 0


def test_no_label_grows_with_builds_models_or_callers(
    metrics: Metrics, observers: Observers
) -> None:
    for number in range(20):
        build = ScriptedBuild(observers, f"b_{number}")
        build.give(Rule.SILENT, Action.WARNED)
        build.run(State.FAILED, Reason.BUILDER_ERROR, queue_s=float(number), gpu_s=1.0)
    words = {*State, *Reason, *Rule, *Action}
    bounds = {str(float(bound)) for bound in BUILD_BUCKETS_S}
    known = {word.value for word in words} | bounds | {"free", "leased", "out_of_service", "+Inf"}
    queue_bounds = {"0.1"}
    assert Scraped(metrics).labels() <= known | queue_bounds | {trt_agent_tools.__version__}


def test_the_document_names_exactly_the_metrics_that_there_are(
    metrics: Metrics, observers: Observers
) -> None:
    build = ScriptedBuild(observers)
    build.give(Rule.SILENT, Action.WARNED)
    build.run(State.SUCCEEDED, Reason.COMPLETED, queue_s=1.0, gpu_s=1.0)
    rows = re.findall(r"^\| `((?:trt|process)_\w*\*?)", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    named = {row for row in rows if not row.endswith("*")}
    prefixes = tuple(row[:-1] for row in rows if row.endswith("*"))
    there = Scraped(metrics).names()
    assert named == {name for name in there if not name.startswith(prefixes)}
    assert all(any(name.startswith(prefix) for name in there) for prefix in prefixes)
