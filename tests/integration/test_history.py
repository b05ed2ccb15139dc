"""A build that was made before is known from its start: how long it takes, and what that is good for."""

import json
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.conftest import Models
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import InputsDigested, ModelRead
from trt_agent_tools.model.inspection import Expected, InspectRequest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import Basis, Detail, Progress, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.policy.replay import read_recording
from trt_agent_tools.store.journal import FILE_NAME
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.documents import RECORD_NAME
from trt_agent_tools.supervisor.service import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

DATA = Path(__file__).parents[1] / "data"
LONGEST_S = 60.0


def recording(path: Path, *actions: dict[str, object], speed: float = 1.0) -> StartRequest:
    """Write a recording of 0.3 s, to be played at `speed`, and return the request that plays it."""
    settings = {"type": "replay", "speed": speed, "actions": list(actions)}
    path.write_text(json.dumps(settings) + "\n" + (DATA / "quick.jsonl").read_text())
    return StartRequest(
        model=path.name, backend=Backend.REPLAY, options=BuildOptions(overwrite=True, reuse="off")
    )


def real(path: Path, **options: object) -> StartRequest:
    return StartRequest(
        model=path.name,
        backend=Backend.TENSORRT_RTX,
        options=BuildOptions.model_validate({"overwrite": True, "reuse": "off", **options}),
    )


@pytest.fixture
def config(tmp_path: Path, root: Path) -> SupervisorConfig:
    return SupervisorConfig(tmp_path / "state", (root,), enable_replay=True)


class Host:
    def __init__(self, service: Supervisor) -> None:
        self.service = service

    async def end(self, request: StartRequest) -> Snapshot:
        """Build, and return how that ended."""
        return (await self.watch(request))[-1]

    async def watch(self, request: StartRequest) -> list[Snapshot]:
        """Build, and return what was shown meanwhile, many times a second."""
        with anyio.fail_after(LONGEST_S):
            seen = [await self.service.start(request)]
            while not seen[-1].ended:
                seen.append(
                    await self.service.progress(
                        seen[0].build_id, wait_s=0.02, since_seq=2**40, detail=Detail.TREE
                    )
                )
        return seen


@asynccontextmanager
async def opened(config: SupervisorConfig) -> AsyncIterator[Host]:
    async with Supervisor(config) as service:
        yield Host(service)


def bases(seen: list[Snapshot]) -> list[Basis]:
    return [shown(snapshot).basis for snapshot in seen]


def shown(snapshot: Snapshot) -> Progress:
    assert snapshot.progress is not None
    return snapshot.progress


def check_only_forward(seen: list[Snapshot]) -> None:
    fractions = [fraction for each in seen if (fraction := shown(each).fraction) is not None]
    assert fractions == sorted(fractions)
    live = [shown(each).fraction or 0.0 for each in seen if not each.ended]
    assert max(live) <= 0.99
    assert fractions[-1] == 1.0


async def test_a_second_build_is_known_from_its_start_and_only_moves_forward(
    config: SupervisorConfig, root: Path
) -> None:
    request = recording(root / "m.jsonl")
    async with opened(config) as host:
        first = await host.watch(request)
        second = await host.watch(request)
    assert Basis.HISTORY not in bases(first)
    assert set(bases(second)) == {Basis.HISTORY}
    assert shown(second[0]).builds == 1
    check_only_forward(second)
    working = [shown(each) for each in second if each.state in {State.STARTING, State.BUILDING}]
    assert len(working) > 3
    for at in working:
        assert at.eta_low_s is not None
        assert at.eta_s is not None
        assert at.eta_high_s is not None
        assert 0 <= at.eta_low_s <= at.eta_s <= at.eta_high_s
    took = second[-1].gpu_s
    assert took is not None
    assert working[0].eta_high_s is not None
    assert working[0].eta_high_s < 10 * took


async def test_a_build_that_waits_says_what_is_expected_of_it(
    config: SupervisorConfig, root: Path
) -> None:
    request = recording(root / "m.jsonl")
    async with opened(config) as host:
        await host.end(request)
        await host.service.start(request)
        other = request.model_copy(update={"output": "other.engine"})
        seen = await host.watch(other)
    waiting = [each for each in seen if each.state is State.QUEUED]
    assert len(waiting) > 3
    assert set(bases(waiting)) == {Basis.HISTORY}
    assert "then takes about" in waiting[0].summary


async def test_what_was_learned_outlives_the_server(config: SupervisorConfig, root: Path) -> None:
    request = recording(root / "m.jsonl")
    async with opened(config) as host:
        await host.end(request)
    async with opened(config) as host:
        seen = await host.watch(request)
    assert set(bases(seen)) == {Basis.HISTORY}


async def test_a_file_that_was_changed_is_another_model(
    config: SupervisorConfig, root: Path
) -> None:
    async with opened(config) as host:
        await host.end(recording(root / "m.jsonl"))
        seen = await host.watch(recording(root / "m.jsonl", speed=1.1))
    assert Basis.HISTORY not in bases(seen)


async def test_a_file_that_only_looks_the_same_is_found_out_by_its_digest(
    config: SupervisorConfig, root: Path
) -> None:
    model = root / "m.jsonl"
    async with opened(config) as host:
        await host.end(recording(model, speed=1.0))
        before = model.stat()
        request = recording(model, speed=1.5)
        os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
        seen = await host.watch(request)
        again = await host.watch(request)
    assert bases(seen)[0] is Basis.HISTORY
    assert bases(seen)[-1] is Basis.STEPS
    # From here on the newest build says what the file is.
    assert set(bases(again)) == {Basis.HISTORY}
    assert shown(again[0]).builds == 1


@pytest.mark.parametrize(
    "action", [{"at": 0.2, "do": "fail"}, {"at": 0.2, "do": "crash"}], ids=["fails", "crashes"]
)
async def test_a_build_that_does_not_succeed_teaches_nothing(
    config: SupervisorConfig, root: Path, action: dict[str, object]
) -> None:
    request = recording(root / "m.jsonl", action)
    async with opened(config) as host:
        ended = await host.end(request)
        assert ended.state is State.FAILED
        again = await host.service.start(request)
    assert shown(again).basis is Basis.NONE


async def test_other_options_are_another_build_and_overwriting_is_not(
    config: SupervisorConfig, root: Path
) -> None:
    request = recording(root / "m.jsonl")
    options = request.options.model_copy(update={"overwrite": False})
    elsewhere = {"output": "other.engine", "options": options}
    level = options.model_copy(update={"builder_optimization_level": 5})
    async with opened(config) as host:
        await host.end(request)
        same = await host.watch(request.model_copy(update=elsewhere))
        different = await host.watch(
            request.model_copy(update={"output": "third.engine", "options": level})
        )
    assert bases(same)[0] is Basis.HISTORY
    assert bases(different)[0] is Basis.NONE


async def test_a_real_build_is_known_the_second_time_and_so_is_one_like_it(
    config: SupervisorConfig, root: Path, models: Models
) -> None:
    known, like = root / "known.onnx", root / "like.onnx"
    known.write_bytes(models.quick.read_bytes())
    transformer(like, blocks=3)
    async with opened(config) as host:
        assert (await host.service.inspect(InspectRequest(model="known.onnx"))).expected is None
        first = await host.watch(real(known))
        looked = await host.service.inspect(InspectRequest(model="known.onnx"))
        looked_like = await host.service.inspect(InspectRequest(model="like.onnx"))
        second = await host.watch(real(known))
        similar = await host.watch(real(like))
    assert [each[-1].state for each in (first, second, similar)] == [State.SUCCEEDED] * 3
    assert Basis.HISTORY not in bases(first)
    assert set(bases(second)) == {Basis.HISTORY}
    check_only_forward(second)
    check_expected(looked.expected, first[-1], same=True)
    assert "expected to build in about" in looked.summary
    check_expected(looked_like.expected, first[-1], same=False)
    # Before the model is parsed nobody knows what it is like.
    assert bases(similar)[0] is Basis.NONE
    assert bases(similar)[-1] is Basis.HISTORY


def check_expected(expected: Expected | None, built: Snapshot, *, same: bool) -> None:
    assert expected is not None
    assert (expected.same, expected.builds) == (same, 1)
    assert 0 < expected.low_s <= expected.build_s <= expected.high_s
    assert built.gpu_s is not None
    assert expected.build_s == pytest.approx(built.gpu_s, abs=0.06 if same else 10)
    assert expected.gpu_s == expected.build_s


async def test_looking_knows_a_model_with_sidecars_by_the_digest_that_its_build_took(
    config: SupervisorConfig, root: Path
) -> None:
    model = root / "m.onnx"
    transformer(model, blocks=1)
    externalise(model)
    async with opened(config) as host:
        ended = await host.end(real(model))
        assert ended.state is State.SUCCEEDED, ended.error
        looked = await host.service.inspect(InspectRequest(model="m.onnx"))
        again = await host.service.start(real(model))
        await host.service.cancel(again.build_id, wait_s=10)
        sidecar = model.with_suffix(".data")
        os.utime(sidecar, ns=(0, 0))
        touched = await host.service.start(real(model))
        await host.service.cancel(touched.build_id, wait_s=10)
    assert looked.expected is not None
    assert looked.expected.same
    assert shown(again).basis is Basis.HISTORY
    assert shown(touched).basis is Basis.NONE


def externalise(model: Path) -> None:
    import onnx  # noqa: PLC0415  (used here alone)

    loaded = onnx.load(model)
    model.unlink()
    onnx.save(
        loaded,
        model,
        save_as_external_data=True,
        location=model.with_suffix(".data").name,
        size_threshold=0,
    )


async def test_what_a_build_tells_of_its_model_is_what_looking_finds_and_is_recorded(
    config: SupervisorConfig, root: Path, models: Models
) -> None:
    model, recorded = root / "m.onnx", root / "recorded.jsonl"
    model.write_bytes(models.quick.read_bytes())
    async with opened(config) as host:
        looked = await host.service.inspect(InspectRequest(model="m.onnx"))
        built = await host.end(real(model))
        events = config.state_dir / "builds" / built.build_id / RECORD_NAME
        recorded.write_bytes(events.read_bytes())
        played = await host.end(
            StartRequest(model=recorded.name, backend=Backend.REPLAY, output="played.engine")
        )
    assert played.state is State.SUCCEEDED, played.error
    told = {event.type: event for event in read_recording(recorded)}
    read, digested = told["model_read"], told["inputs_digested"]
    assert isinstance(read, ModelRead)
    assert (read.operators, read.weight_bytes) == (looked.operators, looked.weights.bytes)
    assert read.nodes == sum(looked.operators.values())
    assert read.optimization_level == 3
    assert isinstance(digested, InputsDigested)
    assert (digested.sha256, digested.bytes) == (looked.sha256, looked.bytes)
    [from_real, from_replay] = shapes(config)
    assert from_real == from_replay
    assert f'"nodes":{read.nodes},' in from_real


def shapes(config: SupervisorConfig) -> list[str]:
    connection = sqlite3.connect(config.state_dir / FILE_NAME)
    found = connection.execute("SELECT shape FROM history ORDER BY number").fetchall()
    connection.close()
    return [shape for (shape,) in found]


async def test_rows_that_cannot_be_are_passed_over_and_told_once(
    config: SupervisorConfig, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = recording(root / "m.jsonl")
    async with opened(config) as host:
        for _ in range(3):
            await host.end(request)
    by_hand(
        config,
        "UPDATE history SET spans = 'no json' WHERE number = 1",
        "UPDATE history SET total_s = -1 WHERE number = 2",
        "UPDATE history SET sidecars = x'ff', model = x'ff' WHERE number = 3",
    )
    with caplog.at_level(logging.WARNING, "trt_agent_tools.store.history"):
        async with opened(config) as host:
            seen = await host.watch(request)
            again = await host.watch(request)
    assert seen[-1].state is again[-1].state is State.SUCCEEDED
    assert Basis.HISTORY not in bases(seen)
    assert set(bases(again)) == {Basis.HISTORY}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)) == 3


def by_hand(config: SupervisorConfig, *statements: str) -> None:
    connection = sqlite3.connect(config.state_dir / FILE_NAME)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        assert connection.execute(statement).rowcount == 1
    connection.commit()
    connection.close()


def with_policy(config: SupervisorConfig, tmp_path: Path, text: str) -> SupervisorConfig:
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    return replace(config, policy=str(policy))


async def test_only_what_is_expected_to_fit_is_started_where_the_policy_asks_for_it(
    config: SupervisorConfig, root: Path, tmp_path: Path
) -> None:
    request = recording(root / "m.jsonl")
    config = with_policy(config, tmp_path, "[session]\nrequire_fit = true\nconcurrent_builds = 4")
    async with opened(config) as host:
        sessions = [
            (await host.service.open_session(SessionRequest(gpu_time=budget))).session_id
            for budget in (30.0, 0.2, 30.0)
        ]
        unknown = await host.watch(request.model_copy(update={"session_id": sessions[0]}))
        with pytest.raises(Refusal) as refused:
            await host.service.start(request.model_copy(update={"session_id": sessions[1]}))
        fitting = await host.watch(request.model_copy(update={"session_id": sessions[2]}))
        listed = await host.service.session(sessions[1])
    assert unknown[-1].state is fitting[-1].state is State.SUCCEEDED
    assert unknown[0].notes is not None
    assert "No past build tells" in unknown[0].notes[0]
    assert fitting[0].notes is None
    error = refused.value.info
    assert error.code is ErrorCode.BUDGET_EXHAUSTED
    took = unknown[-1].gpu_s
    assert took is not None
    assert error.details["expected_s"] == pytest.approx(took, abs=0.06)
    assert error.details["left_s"] == 0.2
    assert {"low_s", "high_s", "promised_s"} <= error.details.keys()
    assert listed.builds == []


async def test_what_other_builds_are_expected_to_use_is_set_aside_for_them(
    config: SupervisorConfig, root: Path, tmp_path: Path
) -> None:
    request = recording(root / "m.jsonl", speed=0.4)
    config = with_policy(config, tmp_path, "[session]\nrequire_fit = true")
    async with opened(config) as host:
        took = (await host.end(request)).gpu_s
        assert took is not None
        session = await host.service.open_session(SessionRequest(gpu_time=1.6 * took))
        mine = request.model_copy(update={"session_id": session.session_id})
        first = await host.service.start(mine)
        with pytest.raises(Refusal) as refused:
            await host.service.start(mine.model_copy(update={"output": "other.engine"}))
        await host.service.cancel(first.build_id, wait_s=10)
    promised = refused.value.info.details["promised_s"]
    assert isinstance(promised, float)
    assert promised > 0


@pytest.mark.parametrize(("mode", "state"), [("enforce", "cancelled"), ("observe", "succeeded")])
async def test_a_build_that_past_ones_let_expect_too_long_is_found_early(
    config: SupervisorConfig, root: Path, tmp_path: Path, mode: str, state: str
) -> None:
    request = recording(root / "m.jsonl", speed=0.4)
    async with opened(config) as host:
        took = (await host.end(request)).gpu_s
    assert took is not None
    rules = (
        f'[rules]\nbuild_time = {{ limit = {took / 2}, mode = "observe" }}\n'
        f'projected_overrun = {{ limit = 1.5, mode = "{mode}" }}\n'
    )
    async with opened(with_policy(config, tmp_path, rules)) as host:
        ended = await host.end(request)
    assert ended.state.value == state
    [verdict] = [
        verdict
        for verdict in ended.verdicts or []
        if verdict.rule is Rule.PROJECTED_OVERRUN and verdict.action is not Action.WARNED
    ]
    assert verdict.action is (Action.CANCEL if mode == "enforce" else Action.WOULD_CANCEL)
    assert verdict.at_s < took
    if mode == "enforce":
        assert ended.reason is Reason.PROJECTED_OVERRUN
