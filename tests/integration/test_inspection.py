"""A model is told of truly, within a bound of time and memory, and no byte of it harms the supervisor."""

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import httpx2
import psutil
import pytest
from onnx import TensorProto, helper

from tests.conftest import Models, processes_of_this_run
from tests.integration.api_serving import Served, recording, served
from tests.integration.looking import look
from tests.onnx_files import (
    field,
    small_model,
    write_dynamic,
    write_external,
    write_inline,
    write_slow,
)
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import MAX_LINE_BYTES, encode_event
from trt_agent_tools.model.findings import Sidecar
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, FrontEnd, StartRequest
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor import inspection

pytestmark = [pytest.mark.anyio, pytest.mark.tensorrt_rtx]

MOST_RSS_BYTES = 300 * 1024**2
GB = 10**9


@pytest.fixture
async def api(root: Path, tmp_path: Path, nothing_left: None) -> AsyncIterator[Served]:
    async with served(root, tmp_path / "state") as running:
        yield running


async def inspect(api: Served, model: str, **options: object) -> Inspection:
    """Look at a model over the socket; the supervisor itself says the same."""
    request = InspectRequest(model=model, options=BuildOptions.model_validate(options))
    return await api.remote.inspect(request)


async def refusal(api: Served, model: str) -> ErrorInfo:
    with pytest.raises(Refusal) as refused:
        await inspect(api, model)
    assert refused.value.info.hint
    return refused.value.info


async def test_a_dynamic_model_is_told_with_shapes_that_it_then_builds_with(
    api: Served, root: Path
) -> None:
    write_dynamic(root / "m.onnx")
    found = await inspect(api, "m.onnx")
    assert found.model == str(root / "m.onnx")
    assert [(i.name, i.dtype, i.shape) for i in found.inputs] == [
        ("x", "float32", ["batch", 3, "height", "width"])
    ]
    assert found.opset == {"ai.onnx": 17, "me": 1, "com.acme": 1, "com.microsoft": 1}
    assert found.producer == "hand"
    assert found.operators == {"Conv": 1, "me::Mine": 1, "com.microsoft::Gelu": 1, "Relu": 1}
    # The parser knows a Gelu in any domain, and the model says itself what is Mine.
    assert found.unsupported_operators == []
    assert found.missing_profiles == found.dynamic_inputs == ["x"]
    assert "needs options.profiles for x" in found.summary
    assert found.proposed_profiles
    profiles = {name: each.model_dump() for name, each in found.proposed_profiles.items()}

    again = await inspect(api, "m.onnx", profiles=profiles)
    assert (again.missing_profiles, again.proposed_profiles) == ([], None)
    assert again.dynamic_inputs == ["x"]

    options = BuildOptions.model_validate({"profiles": profiles})
    build = await api.remote.start(StartRequest(model="m.onnx", options=options))
    with anyio.fail_after(60):
        while not build.ended:
            build = await api.remote.progress(build.build_id, wait_s=10, since_seq=build.seq)
    assert build.state is State.SUCCEEDED, build.error


async def test_operators_told_as_unsupported_are_those_that_a_build_fails_for(
    api: Served, root: Path
) -> None:
    write_dynamic(root / "m.onnx", unsupported=True)
    found = await inspect(api, "m.onnx")
    assert found.unsupported_operators == ["com.acme::Fancy", "Unique"]
    assert "tensorrt_rtx does not support com.acme::Fancy, Unique" in found.summary
    build = await api.remote.start(StartRequest(model="m.onnx"))
    with anyio.fail_after(60):
        while not build.ended:
            build = await api.remote.progress(build.build_id, wait_s=10, since_seq=build.seq)
    full = await api.remote.progress(build.build_id, detail=Detail.FULL)
    assert full.error
    assert full.error.code is ErrorCode.UNSUPPORTED_OPERATORS
    assert set(full.error.details["operators"] or []) <= {"Fancy", "Unique"}  # type: ignore[arg-type]


async def test_every_way_to_ask_gives_the_same_answer(
    api: Served, root: Path, models: Models
) -> None:
    (root / "m.onnx").symlink_to("real.onnx")
    (root / "real.onnx").write_bytes(models.quick.read_bytes())
    request = InspectRequest(model="m.onnx")
    local = await api.local.inspect(request)
    assert await api.local.inspect(request, front_end=api.front_end) == local
    assert await api.remote.inspect(request) == local
    assert local.weights.bytes < local.bytes == models.quick.stat().st_size


def test_ten_gigabytes_of_weights_beside_the_model_are_not_loaded(root: Path) -> None:
    sidecar = write_external(root / "m.onnx", 10 * GB)
    looked = look(root / "m.onnx", time_limit_s=2)
    found = looked.found
    assert found.weights.external_count == found.weights.count == 1
    assert found.weights.bytes == 10 * GB
    assert found.sidecars == [Sidecar(sidecar.name, 10 * GB)]
    assert found.bytes == 10 * GB + (root / "m.onnx").stat().st_size
    # Not in two seconds; everything else is told all the same.
    assert found.sha256 is None
    assert any("sha256" in note for note in found.notes)
    assert found.unsupported_operators == []
    assert looked.peak_rss_bytes < MOST_RSS_BYTES


def test_two_gigabytes_of_weights_inside_the_model_are_not_loaded(root: Path) -> None:
    write_inline(root / "m.onnx", 2 * GB)
    looked = look(root / "m.onnx", time_limit_s=1)
    assert looked.found.weights.bytes == 2 * GB
    assert looked.found.operators == {"Add": 1}
    assert looked.peak_rss_bytes < MOST_RSS_BYTES


async def test_a_missing_and_a_shortened_sidecar_are_told(api: Served, root: Path) -> None:
    sidecar = write_external(root / "m.onnx", 1000)
    sidecar.write_bytes(bytes(999))
    short = await inspect(api, "m.onnx")
    assert any("999 bytes" in note and "1000" in note for note in short.notes or [])
    assert short.sha256
    sidecar.unlink()
    found = await inspect(api, "m.onnx")
    assert found.missing_sidecars == [sidecar.name]
    assert sidecar.name in found.summary
    assert (found.sha256, found.sidecars) == (None, [])


def many_inputs() -> bytes:
    name = "\u4e2d" * 200
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [name] * 30)
    info = helper.make_value_info(name, kind).SerializeToString()
    return small_model() + field(7, field(11, info) * 100)


def test_what_is_told_fits_on_a_line_whatever_the_model_is_called(root: Path) -> None:
    (root / "m.onnx").write_bytes(many_inputs())
    found = look(root / "m.onnx").found
    assert len(encode_event(found)) <= MAX_LINE_BYTES
    assert any("inputs are left out" in note for note in found.notes)
    assert found.operators == {"Add": 1}


def test_without_the_library_everything_else_is_told(root: Path, tmp_path: Path) -> None:
    broken = tmp_path / "modules"
    broken.mkdir()
    (broken / "tensorrt_rtx.py").write_text("raise ImportError('libcudart.so is not there')")
    (root / "m.onnx").write_bytes(small_model())
    found = look(root / "m.onnx", environment={"PYTHONPATH": str(broken)}).found
    assert found.unsupported_operators is None
    assert any("libcudart.so is not there" in note for note in found.notes)
    assert found.operators == {"Add": 1}
    assert found.sha256


def deep() -> bytes:
    inner = b""
    for _ in range(500):
        inner = field(1, field(5, field(6, inner)))
    return field(7, inner)


HOSTILE: dict[str, tuple[ErrorCode, Callable[[Path], object]]] = {
    "garbage": (ErrorCode.INVALID_MODEL, lambda path: path.write_bytes(os.urandom(5000))),
    "text": (ErrorCode.INVALID_MODEL, lambda path: path.write_text("import torch\n" * 100)),
    "empty message": (ErrorCode.INVALID_MODEL, lambda path: path.write_bytes(b"\x08\x07")),
    "cut short": (ErrorCode.INVALID_MODEL, lambda path: path.write_bytes(small_model()[:-9])),
    "nested deep": (ErrorCode.INVALID_MODEL, lambda path: path.write_bytes(deep())),
    "too large": (ErrorCode.INVALID_MODEL, lambda path: write_inline(path, 3 * GB)),
    "empty": (ErrorCode.MODEL_EMPTY, lambda path: path.write_bytes(b"")),
    "a FIFO": (ErrorCode.NOT_A_FILE, os.mkfifo),
    "a folder": (ErrorCode.NOT_A_FILE, lambda path: path.mkdir()),
    "a link that leads out": (
        ErrorCode.OUTSIDE_ROOTS,
        lambda path: path.symlink_to("/etc/hostname"),
    ),
    "a link into nothing": (ErrorCode.MODEL_NOT_FOUND, lambda path: path.symlink_to("gone")),
    "nothing": (ErrorCode.MODEL_NOT_FOUND, lambda path: path.exists()),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_is_no_model_is_refused_as_a_build_would(
    api: Served, root: Path, kind: str
) -> None:
    code, make = HOSTILE[kind]
    make(root / "m.onnx")
    assert (await refusal(api, "m.onnx")).code is code


async def test_external_data_and_models_outside_the_roots_are_refused(
    api: Served, root: Path, tmp_path: Path
) -> None:
    sidecar = write_external(tmp_path / "m.onnx", 16)
    assert (await refusal(api, str(tmp_path / "m.onnx"))).code is ErrorCode.OUTSIDE_ROOTS
    (root / "m.onnx").write_bytes((tmp_path / "m.onnx").read_bytes())
    (root / sidecar.name).symlink_to(sidecar)
    assert (await refusal(api, "m.onnx")).code is ErrorCode.OUTSIDE_ROOTS


async def test_a_front_end_sees_only_its_own_roots(api: Served, root: Path, tmp_path: Path) -> None:
    (root / "m.onnx").write_bytes(small_model())
    (tmp_path / "other").mkdir()
    other = FrontEnd(roots=[str(tmp_path / "other")])
    with pytest.raises(Refusal) as refused:
        await api.local.inspect(InspectRequest(model=str(root / "m.onnx")), front_end=other)
    assert refused.value.info.code is ErrorCode.OUTSIDE_ROOTS


async def test_a_call_over_http_says_what_its_front_end_allows(api: Served, root: Path) -> None:
    (root / "m.onnx").write_bytes(small_model())
    body: dict[str, object] = {"request": {"model": "m.onnx"}}
    bare = await api.http.post("/v1/models/inspect", json=body)
    assert bare.status_code == 422
    allowed = {**body, "front_end": api.front_end.model_dump()}
    answer = await api.http.post("/v1/models/inspect", json=allowed, timeout=30)
    assert Inspection.model_validate_json(answer.content).operators == {"Add": 1}
    unknown = {**allowed, "request": {"model": "m.onnx", "options": {"profile": {}}}}
    assert (await api.http.post("/v1/models/inspect", json=unknown)).status_code == 422


async def test_a_recording_is_no_model(api: Served, root: Path) -> None:
    played = recording(root, "quick")
    with pytest.raises(Refusal) as refused:
        await api.remote.inspect(InspectRequest(model=played.model, backend=Backend.REPLAY))
    assert refused.value.info.code is ErrorCode.INVALID_ARGUMENT


async def test_many_calls_at_once_are_all_answered(api: Served, root: Path) -> None:
    answers: list[Inspection] = []
    for number in range(10):
        (root / f"{number}.onnx").write_bytes(small_model())

    async def one(number: int) -> None:
        answers.append(await inspect(api, f"{number}.onnx"))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)
    assert {Path(found.model).stem for found in answers} == set(map(str, range(10)))


def workers() -> list[psutil.Process]:
    return [p for p in processes_of_this_run() if "trt_agent_tools.worker" in p.cmdline()]


async def until_workers(count: int) -> None:
    with anyio.fail_after(20):
        while len(workers()) != count:
            await anyio.sleep(0.02)


async def test_a_call_waits_for_a_place_while_all_are_taken(api: Served, root: Path) -> None:
    write_slow(root / "slow.onnx")
    (root / "m.onnx").write_bytes(small_model())
    answered = anyio.Event()
    slow = anyio.CancelScope()

    async def hold() -> None:
        with slow:
            async with anyio.create_task_group() as holders:
                for _ in range(inspection.AT_ONCE):
                    holders.start_soon(inspect, api, "slow.onnx")

    async def ask() -> None:
        await inspect(api, "m.onnx")
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await until_workers(inspection.AT_ONCE)
        tasks.start_soon(ask)
        # Several times what an answer takes.
        with anyio.move_on_after(3):
            await answered.wait()
        assert not answered.is_set()
        assert len(workers()) == inspection.AT_ONCE
        slow.cancel()
        with anyio.fail_after(20):
            await answered.wait()


async def test_a_caller_that_hangs_up_takes_the_worker_along(api: Served, root: Path) -> None:
    write_slow(root / "slow.onnx")
    body = {"request": {"model": "slow.onnx"}, "front_end": api.front_end.model_dump()}
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises((httpx2.TransportError, anyio.get_cancelled_exc_class())):
                await api.http.post("/v1/models/inspect", json=body, timeout=60)

        tasks.start_soon(ask)
        await until_workers(1)
        tasks.cancel_scope.cancel()
    await until_workers(0)


async def test_a_model_that_takes_too_long_is_refused_and_its_worker_gone(
    api: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slow(root / "slow.onnx")
    monkeypatch.setattr(inspection, "INSPECT_S", inspection._END_S + 1.5)
    assert (await refusal(api, "slow.onnx")).code is ErrorCode.TIMED_OUT
    assert workers() == []


async def test_looking_leaves_nothing_in_the_list_of_builds(api: Served, root: Path) -> None:
    (root / "m.onnx").write_bytes(small_model())
    await inspect(api, "m.onnx")
    assert (await api.remote.list_builds()).builds == []
    assert json.loads((await api.local.session()).model_dump_json())["builds"] == []
    assert [path.name for path in root.iterdir()] == ["m.onnx"]
