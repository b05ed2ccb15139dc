"""Real TensorRT-RTX builds, driven by a real MCP client."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.conftest import Serve
from tests.acceptance.transports import EACH_TRANSPORT, STDIO, over
from tests.conftest import Models
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.snapshot import Phase, PhaseStatus
from trt_agent_tools.model.states import Reason, Rung, State

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.tensorrt_rtx,
    over(STDIO, reason="The library and the worker do this, whoever asked for it."),
]

SILENT = "Determining refit engines"


def names(phases: list[Phase]) -> list[str]:
    return [name for phase in phases for name in (phase.name, *names(phase.children))]


@over(*EACH_TRANSPORT, reason="The one real build that each transport has to carry.")
async def test_a_build_leaves_a_verified_engine_and_its_manifest(
    serve: Serve, root: Path, models: Models
) -> None:
    model = Path(shutil.copy(models.quick, root))
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="quick.onnx", label="first")
        assert started.state in {State.QUEUED, State.STARTING}
        ended = await agent.end(started.build_id)
    assert ended.state is State.SUCCEEDED
    assert ended.reason is Reason.COMPLETED
    assert ended.result
    engine = root / "quick.engine"
    assert Path(ended.result.engine) == engine
    assert hashlib.sha256(engine.read_bytes()).hexdigest() == ended.result.sha256
    assert engine.stat().st_size == ended.result.bytes > 0
    manifest = Manifest.model_validate_json(Path(ended.result.manifest).read_text())
    assert manifest.engine.sha256 == ended.result.sha256
    assert manifest.model.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    assert manifest.label == "first"
    assert "tensorrt_rtx" in manifest.versions
    assert "libtensorrt_rtx" in manifest.library
    assert sorted(path.name for path in root.iterdir()) == [
        "quick.engine",
        "quick.engine.json",
        "quick.onnx",
    ]


async def test_progress_covers_import_parse_tensorrts_own_phases_and_writing(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="quick.onnx")
        ended = await agent.end(started.build_id)
    assert ended.phases
    assert [phase.name for phase in ended.phases] == [
        "Importing TensorRT",
        "Parsing the model",
        "Building",
        "Writing the engine",
    ]
    assert {"Building engine", "Timing tactics", SILENT} <= set(names(ended.phases))
    assert all(phase.status is PhaseStatus.FINISHED for phase in ended.phases)
    assert ended.progress
    assert ended.progress.fraction == 1.0
    assert ended.progress.eta_s is None


async def test_options_are_reported_as_asked_for_and_in_effect(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        started = await agent.snapshot(
            "start_build",
            model="quick.onnx",
            options={
                "builder_optimization_level": 2,
                "memory_pool_limits": {"WORKSPACE": "512MiB"},
                "clear_flags": ["TF32"],
            },
        )
        ended = await agent.end(started.build_id)
    assert ended.state is State.SUCCEEDED
    assert ended.options
    reported = {option.name: (option.requested, option.effective) for option in ended.options}
    assert reported["builder_optimization_level"] == ("2", "2")
    manifest = json.loads((root / "quick.engine.json").read_text())
    in_effect = {option["name"]: option["effective"] for option in manifest["options"]}
    assert in_effect["memory_pool_limits"] == {"WORKSPACE": 512 << 20}


async def test_the_silent_step_is_called_work_not_a_hang(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        await agent.until(started.build_id, SILENT)
        snapshot = await agent.snapshot("get_progress", build_id=started.build_id)
        while (snapshot.quiet_s or 0) < 3:
            snapshot = await agent.snapshot("get_progress", build_id=started.build_id, wait_s=1)
            assert not snapshot.ended, "the model is to be silent for longer than that"
        assert snapshot.activity
        assert snapshot.activity.busy
        assert "hung" not in snapshot.summary
        assert SILENT in snapshot.summary
        await agent.snapshot("cancel_build", build_id=started.build_id)


async def test_cancel_in_the_silent_step_leaves_no_process_and_no_file(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        await agent.until(started.build_id, SILENT)
        ended = await agent.snapshot("cancel_build", build_id=started.build_id, wait_s=30)
        assert ended.state is State.CANCELLED
        assert ended.reason is Reason.USER_REQUEST
        assert ended.ended_by is Rung.TERMINATE
    assert [path.name for path in root.iterdir()] == ["silent.onnx"]


async def test_cancel_in_the_steps_is_seen_by_the_builder_itself(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        await agent.until(started.build_id, "Building engine")
        ended = await agent.snapshot("cancel_build", build_id=started.build_id, wait_s=30)
    assert ended.state is State.CANCELLED
    # At the latest the silent step is reached before the order is read; then SIGTERM ends it.
    assert ended.ended_by in {Rung.ASK, Rung.TERMINATE}
    assert [path.name for path in root.iterdir()] == ["silent.onnx"]


async def test_cancel_in_parse_ends_the_build_before_tensorrts_first_phase(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        await agent.until(started.build_id, "Parsing the model")
        await agent.snapshot("cancel_build", build_id=started.build_id, reason="changed my mind")
        ended = await agent.end(started.build_id)
    assert ended.state is State.CANCELLED
    assert ended.ended_by is Rung.ASK
    assert ended.notes
    assert any("changed my mind" in note for note in ended.notes)
    assert ended.phases
    assert "Building engine" not in names(ended.phases)


async def test_cancel_in_the_tail_ends_either_with_a_whole_engine_or_with_none(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="quick.onnx")
        seen = await agent.until(started.build_id, "Building engine")
        while not seen.ended and seen.current and "Building engine" in seen.current:
            seen = await agent.snapshot("get_progress", build_id=started.build_id)
        await agent.snapshot("cancel_build", build_id=started.build_id)
        ended = await agent.end(started.build_id)
    left = sorted(path.name for path in root.iterdir())
    if ended.state is State.SUCCEEDED:
        assert left == ["quick.engine", "quick.engine.json", "quick.onnx"]
    else:
        assert ended.state is State.CANCELLED
        assert left == ["quick.onnx"]


async def test_a_second_build_waits_for_the_device_and_can_leave_the_queue(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    shutil.copy(models.quick, root)
    async with serve() as agent:
        first = await agent.snapshot("start_build", model="silent.onnx")
        second = await agent.snapshot("start_build", model="quick.onnx")
        await agent.until(first.build_id, "Building engine")
        waiting = await agent.snapshot("get_progress", build_id=second.build_id, detail="tree")
        assert waiting.state is State.QUEUED
        assert waiting.device is None
        left = await agent.snapshot("cancel_build", build_id=second.build_id, wait_s=5)
        assert left.state is State.CANCELLED
        assert left.ended_by is Rung.DEQUEUED
        listed = await agent.call("list_builds", state="building")
        assert listed.structured_content
        assert [b["build_id"] for b in listed.structured_content["builds"]] == [first.build_id]
        await agent.snapshot("cancel_build", build_id=first.build_id)


async def test_a_repeated_start_with_one_key_is_one_build(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        first = await agent.snapshot("start_build", model="quick.onnx", idempotency_key="k")
        again = await agent.snapshot("start_build", model="quick.onnx", idempotency_key="k")
        assert again.build_id == first.build_id
        other = await agent.refusal(
            "start_build", model="quick.onnx", output="other.engine", idempotency_key="k"
        )
        assert other.details["build_id"] == first.build_id
        await agent.end(first.build_id)


async def test_the_log_is_marked_as_untrusted_and_filtered_by_severity(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="quick.onnx")
        await agent.end(started.build_id)
        everything = await agent.call("get_log", build_id=started.build_id, tail=5)
        assert everything.structured_content
        assert everything.structured_content["untrusted"] is True
        assert len(everything.structured_content["lines"]) == 5
        severe = await agent.call("get_log", build_id=started.build_id, min_severity="error")
        assert severe.structured_content
        assert all(
            line.get("severity") in {None, "error", "internal_error"}
            for line in severe.structured_content["lines"]
        )


async def test_the_last_snapshot_stays_the_same_for_ever(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="quick.onnx")
        ended = await agent.end(started.build_id)
        after_cancel = await agent.snapshot("cancel_build", build_id=started.build_id)
        again = await agent.snapshot("get_progress", build_id=started.build_id, detail="full")
    assert after_cancel.state is State.SUCCEEDED
    assert again == ended
