"""An identical request gets the engine of the build before it, verified; any difference builds."""

import json
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import onnx
import pytest

from tests.conftest import Models
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.options import BuildOptions, ShapeRange
from trt_agent_tools.model.request import Backend, LimitValue, StartRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.supervisor.config import EngineCacheConfig, SupervisorConfig
from trt_agent_tools.supervisor.reuse import key, reuser
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.supervisor.verify import Finding, verify

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

DATA = Path(__file__).parents[1] / "data"
SIZE = 1 << 30
HANG = {"at": 0.07, "do": "hang_idle"}


class Host:
    """A supervisor with an engine cache, and what a test asks of it."""

    def __init__(self, service: Supervisor, root: Path) -> None:
        self.service = service
        self.root = root

    async def start(
        self,
        output: str,
        model: str = "m.jsonl",
        *,
        backend: Backend = Backend.REPLAY,
        principal: str = "local",
        limits: dict[str, LimitValue] | None = None,
        options: BuildOptions | None = None,
    ) -> str:
        request = StartRequest(
            model=str(self.root / model),
            output=str(self.root / output),
            backend=backend,
            options=options or BuildOptions(),
            limits=limits or {},
        )
        return (await self.service.start(request, principal=principal)).build_id

    async def end(self, build_id: str, principal: str = "local") -> Snapshot:
        with anyio.fail_after(60):
            told = await self.service.progress(build_id, principal=principal)
            while not told.ended:
                told = await self.service.progress(
                    build_id, wait_s=10, since_seq=told.seq, principal=principal
                )
        return await self.service.progress(build_id, detail=Detail.FULL, principal=principal)

    async def build(
        self,
        output: str,
        model: str = "m.jsonl",
        *,
        backend: Backend = Backend.REPLAY,
        principal: str = "local",
        options: BuildOptions | None = None,
    ) -> Snapshot:
        build_id = await self.start(
            output, model, backend=backend, principal=principal, options=options
        )
        return await self.end(build_id, principal)

    async def kept(self) -> None:
        """Return when the engines of all builds that have ended are kept."""
        with anyio.fail_after(20):
            await self.service._reuser.landed()

    async def noted(self, build_id: str, text: str) -> None:
        """Return when a note of the build has `text`."""
        with anyio.fail_after(20):
            told = await self.service.progress(build_id)
            while not any(text in note for note in told.notes or []):
                assert not told.ended, told
                told = await self.service.progress(build_id, wait_s=10, since_seq=told.seq)

    async def in_phase(self, build_id: str, phase: str) -> None:
        with anyio.fail_after(20):
            told = await self.service.progress(build_id)
            while phase not in (told.current or ""):
                assert not told.ended, told
                told = await self.service.progress(build_id, wait_s=10, since_seq=told.seq)


def recording(path: Path, *actions: dict[str, object], more: str = "", size: int = 4096) -> None:
    settings = {"type": "replay", "speed": 50, "engine_bytes": size, "actions": list(actions)}
    path.write_text(json.dumps(settings) + "\n" + (DATA / "quick.jsonl").read_text() + more)


@pytest.fixture
def config(tmp_path: Path, root: Path) -> SupervisorConfig:
    recording(root / "m.jsonl")
    return SupervisorConfig(
        *(tmp_path / "state", (root,)),
        enable_replay=True,
        engine_cache=EngineCacheConfig(tmp_path / "state" / "engines", SIZE),
    )


@asynccontextmanager
async def opened(config: SupervisorConfig) -> AsyncIterator[Host]:
    async with Supervisor(config) as supervisor:
        yield Host(supervisor, config.roots[0])


async def test_an_identical_request_gets_the_engine_at_no_charge_and_says_whose_it_is(
    config: SupervisorConfig,
) -> None:
    async with opened(config) as host:
        first = await host.build("a.engine")
        before = await host.service.session()
        second = await host.build("b.engine")
        after = await host.service.session()
    assert first.result
    assert first.result.reused is None
    assert second.result
    assert (second.state, second.reason) == (State.SUCCEEDED, Reason.COMPLETED)
    assert second.result.reused == first.build_id
    assert second.result.sha256 == first.result.sha256
    assert second.result.engine == str(host.root / "b.engine")
    assert f"reused from {first.build_id}" in second.summary
    assert any(first.build_id in note for note in second.notes or [])
    assert (second.gpu_s, second.device) == (None, None)
    assert after.spent_s == before.spent_s
    assert Path(first.result.engine).samefile(second.result.engine)


async def test_a_reused_engine_has_a_manifest_of_its_own_build_that_verifies(
    config: SupervisorConfig, root: Path
) -> None:
    async with opened(config) as host:
        shutil.copy(root / "m.jsonl", root / "copy.jsonl")
        first = await host.build("a.engine")
        second = await host.build("b.engine", "copy.jsonl")
        manifest = await host.service.manifest(second.build_id)
    assert manifest.build_id == second.build_id
    assert manifest.reused_from == first.build_id
    assert (manifest.model.path, manifest.engine.path) == (
        str(root / "copy.jsonl"),
        str(root / "b.engine"),
    )
    assert {each.finding for each in verify(root / "b.engine")} == {Finding.OK}
    assert (
        manifest.phases == Manifest.model_validate_json((root / "a.engine.json").read_text()).phases
    )


async def test_the_journal_knows_a_reused_engine_after_a_restart_and_so_does_the_cache(
    config: SupervisorConfig,
) -> None:
    async with opened(config) as host:
        first = await host.build("a.engine")
        second = await host.build("b.engine")
    async with opened(config) as host:
        known = await host.service.progress(second.build_id, detail=Detail.FULL)
        third = await host.build("c.engine")
    assert known == second
    assert third.result
    assert third.result.reused == first.build_id


async def test_any_difference_in_what_is_asked_for_builds(
    config: SupervisorConfig, root: Path
) -> None:
    others = [
        BuildOptions(flags=["TF32"]),
        BuildOptions(builder_optimization_level=1),
        BuildOptions(profiles=[{"x": ShapeRange(min=[1], opt=[1], max=[2])}]),
        BuildOptions(reuse="off"),
    ]
    async with opened(config) as host:
        await host.build("a.engine")
        built = [
            await host.build(f"b{number}.engine", options=options)
            for number, options in enumerate(others)
        ]
        recording(root / "m.jsonl", more="\n")
        built.append(await host.build("b.engine"))
    assert [build.state for build in built] == [State.SUCCEEDED] * 5
    assert [build.result and build.result.reused for build in built] == [None] * 5


async def test_options_that_change_no_engine_do_not_make_a_request_another(
    config: SupervisorConfig, root: Path
) -> None:
    (root / "b.engine").write_bytes(b"older")
    async with opened(config) as host:
        first = await host.build("a.engine")
        timed = BuildOptions(overwrite=True, timing_cache=str(root / "timing"))
        second = await host.build("b.engine", options=timed)
        again = await host.build("b.engine", options=BuildOptions(overwrite=True))
    for build in (second, again):
        assert build.result
        assert build.result.reused == first.build_id
    assert {each.finding for each in verify(root / "b.engine")} == {Finding.OK}


async def test_another_principal_builds_for_itself(config: SupervisorConfig) -> None:
    async with opened(config) as host:
        await host.build("a.engine", principal="ada")
        other = await host.build("b.engine", principal="grace")
        own = await host.build("c.engine", principal="ada")
    assert other.result
    assert other.result.reused is None
    assert own.result
    assert own.result.reused


async def test_another_version_of_the_library_builds(
    config: SupervisorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(config) as host:
        await host.build("a.engine")
        monkeypatch.setattr(key, "__version__", "9.9.9")
        other = await host.build("b.engine")
    assert other.result
    assert other.result.reused is None


async def test_another_kind_of_device_builds(
    config: SupervisorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(config) as host:
        await host.build("a.engine")
    monkeypatch.setattr(reuser, "device_kind", lambda device: f"{device.name} of another kind")
    async with opened(config) as host:
        other = await host.build("b.engine")
    assert other.result
    assert other.result.reused is None


async def test_what_is_built_without_reuse_is_the_engine_that_counts_from_then_on(
    config: SupervisorConfig,
) -> None:
    async with opened(config) as host:
        await host.build("a.engine")
        second = await host.build("b.engine", options=BuildOptions(reuse="off"))
        third = await host.build("c.engine")
    assert third.result
    assert third.result.reused == second.build_id


async def test_a_policy_can_turn_reuse_off(config: SupervisorConfig, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('reuse = "off"\n')
    async with opened(replace(config, policy=str(policy))) as host:
        await host.build("a.engine")
        other = await host.build("b.engine")
    assert other.result
    assert other.result.reused is None
    assert not (tmp_path / "state" / "engines").exists()


async def test_a_cache_of_no_size_keeps_nothing(config: SupervisorConfig, tmp_path: Path) -> None:
    cache = EngineCacheConfig(tmp_path / "state" / "engines", 0)
    async with opened(replace(config, engine_cache=cache)) as host:
        await host.build("a.engine")
        other = await host.build("b.engine")
    assert other.result
    assert other.result.reused is None
    assert not cache.folder.exists()


@pytest.mark.parametrize("content", [b"x" * 4096, b"x", b""], ids=["altered", "cut off", "empty"])
async def test_an_engine_that_its_user_wrote_to_is_thrown_out_told_of_and_built_anew(
    config: SupervisorConfig, root: Path, content: bytes
) -> None:
    async with opened(config) as host:
        first = await host.build("a.engine")
        await host.kept()
        (root / "a.engine").write_bytes(content)
        second = await host.build("b.engine")
        third = await host.build("c.engine")
    assert second.result
    assert second.result.reused is None
    assert any(first.build_id in note and "thrown out" in note for note in second.notes or [])
    assert {each.finding for each in verify(root / "b.engine")} == {Finding.OK}
    assert third.result
    assert third.result.reused == second.build_id


async def test_an_engine_that_is_gone_from_its_output_is_reused_all_the_same(
    config: SupervisorConfig, root: Path
) -> None:
    async with opened(config) as host:
        first = await host.build("a.engine")
        await host.kept()
        (root / "a.engine").unlink()
        second = await host.build("b.engine")
    assert second.result
    assert second.result.reused == first.build_id


async def test_an_engine_is_copied_to_and_from_a_cache_on_another_file_system(
    config: SupervisorConfig, root: Path
) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == root.stat().st_dev:
        pytest.skip("there is no other file system to write to")
    folder = elsewhere / f"trt-agent-tools-{os.getpid()}"
    try:
        cache = EngineCacheConfig(folder, SIZE)
        async with opened(replace(config, engine_cache=cache)) as host:
            first = await host.build("a.engine")
            second = await host.build("b.engine")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert second.result
    assert second.result.reused == first.build_id
    assert not (root / "a.engine").samefile(root / "b.engine")
    assert {each.finding for each in verify(root / "b.engine")} == {Finding.OK}


async def test_a_cache_that_cannot_be_written_holds_up_no_build_and_is_told_of_once(
    config: SupervisorConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = EngineCacheConfig(tmp_path / "file" / "engines", SIZE)
    with caplog.at_level(logging.WARNING):
        async with opened(replace(config, engine_cache=cache)) as host:
            builds = [await host.build(f"{number}.engine") for number in range(3)]
    assert {build.state for build in builds} == {State.SUCCEEDED}
    told = [record.message for record in caplog.records if "reuse" in record.name]
    assert len(told) == 1, told
    assert str(cache.folder) in told[0]


async def test_an_output_that_appeared_while_the_build_was_queued_is_left_as_it_is(
    config: SupervisorConfig, root: Path
) -> None:
    recording(root / "m.jsonl", {"at": 0.07, "do": "hang_idle", "for_s": 1})
    async with opened(config) as host:
        first = await host.start("a.engine")
        second = await host.start("b.engine")
        await host.noted(second, "Waits for")
        (root / "b.engine").write_bytes(b"somebody's")
        ended = await host.end(second)
        await host.end(first)
    assert ended.state is State.FAILED
    assert ended.reason is Reason.OUTPUT_ERROR
    assert ended.error
    assert ended.error.code is ErrorCode.OUTPUT_EXISTS
    assert (root / "b.engine").read_bytes() == b"somebody's"
    assert not (root / "b.engine.json").exists()


async def test_a_second_identical_request_waits_for_the_first_and_shares_its_engine(
    config: SupervisorConfig, root: Path
) -> None:
    recording(root / "m.jsonl", {"at": 0.07, "do": "hang_idle", "for_s": 0.5})
    shutil.copy(root / "m.jsonl", root / "copy.jsonl")
    async with opened(config) as host:
        first = await host.start("a.engine")
        second = await host.start("b.engine")
        third = await host.start("c.engine", "copy.jsonl")
        for build_id in (second, third):
            await host.noted(build_id, f"Waits for {first}")
            assert (await host.service.progress(build_id)).state is State.QUEUED
        ends = [await host.end(build_id) for build_id in (first, second, third)]
    assert [end.result and end.result.reused for end in ends] == [None, first, first]


async def test_where_the_first_of_two_identical_requests_fails_the_second_builds(
    config: SupervisorConfig, root: Path
) -> None:
    recording(root / "m.jsonl", HANG)
    async with opened(config) as host:
        first = await host.start("a.engine")
        await host.in_phase(first, "Parsing")
        second = await host.start("b.engine")
        await host.noted(second, f"Waits for {first}")
        await host.service.cancel(first, at_once=True)
        await host.in_phase(second, "Parsing")
        assert (await host.service.progress(second)).gpu_s is not None
        await host.service.cancel(second, at_once=True)
        await host.end(second)


async def test_a_build_that_waits_for_another_can_be_cancelled_and_the_other_goes_on(
    config: SupervisorConfig, root: Path
) -> None:
    recording(root / "m.jsonl", HANG)
    async with opened(config) as host:
        first = await host.start("a.engine")
        second = await host.start("b.engine")
        await host.noted(second, "Waits for")
        await host.service.cancel(second)
        ended = await host.end(second)
        assert not (await host.service.progress(first)).ended
        await host.service.cancel(first, at_once=True)
        await host.end(first)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.USER_REQUEST)
    assert ended.gpu_s is None


async def test_a_build_waits_for_another_no_longer_than_its_queue_time(
    config: SupervisorConfig, root: Path
) -> None:
    recording(root / "m.jsonl", HANG)
    async with opened(config) as host:
        first = await host.start("a.engine")
        second = await host.start("b.engine", limits={"queue_time": "300ms"})
        ended = await host.end(second)
        await host.service.cancel(first, at_once=True)
        await host.end(first)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.QUEUE_TIME)


async def test_two_supervisors_share_a_cache(config: SupervisorConfig, tmp_path: Path) -> None:
    async with (
        opened(config) as host,
        opened(replace(config, state_dir=tmp_path / "other")) as other,
    ):
        first = await host.build("a.engine")
        second = await other.build("b.engine")
    assert second.result
    assert second.result.reused == first.build_id


async def test_a_real_engine_is_reused_until_the_weights_beside_its_model_change(
    config: SupervisorConfig, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root / "quick.onnx")
    onnx.save(
        onnx.load(models.quick),
        root / "beside.onnx",
        save_as_external_data=True,
        location="beside.bin",
        size_threshold=0,
    )
    rtx = Backend.TENSORRT_RTX
    async with opened(config) as host:
        first = await host.build("a.engine", "quick.onnx", backend=rtx)
        second = await host.build("b.engine", "quick.onnx", backend=rtx)
        third = await host.build("c.engine", "beside.onnx", backend=rtx)
        fourth = await host.build("d.engine", "beside.onnx", backend=rtx)
        with (root / "beside.bin").open("r+b") as weights:
            weights.write(b"\1\2\3\4")
        fifth = await host.build("e.engine", "beside.onnx", backend=rtx)
    builds = (first, second, third, fourth, fifth)
    assert [build.state for build in builds] == [State.SUCCEEDED] * 5, builds
    reused = [build.result and build.result.reused for build in builds]
    assert reused == [None, first.build_id, None, third.build_id, None]
    for name in "abe":
        assert {each.finding for each in verify(root / f"{name}.engine")} == {Finding.OK}
