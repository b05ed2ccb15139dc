"""What a bad request gets: an error with a code and a hint, and nothing left behind."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.acceptance.agent import Agent
from tests.acceptance.conftest import Serve
from tests.acceptance.transports import EACH_TRANSPORT, STDIO, over
from tests.conftest import Models
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.states import Reason, State

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.tensorrt_rtx,
    over(
        *EACH_TRANSPORT,
        reason="An era frames a refusal and does not change it; test_everywhere.py compares both.",
    ),
]

worker_judges = over(STDIO, reason="The build's worker judges, and never sees a transport.")
kernel_refuses = over(STDIO, reason="What the kernel refuses it refuses to every supervisor.")


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    *,
    shape: list[int | str] | None = None,
    weights: list[onnx.TensorProto] | None = None,
) -> None:
    """Write a model from input x to output y."""
    dimensions = shape or [1, 4]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dimensions)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dimensions)],
        weights or [],
    )
    onnx.save(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)],
            ir_version=9,
        ),
        path,
    )


async def failure(agent: Agent, **arguments: object) -> ErrorInfo:
    """Start a build that is accepted, and return the error that it fails with."""
    started = await agent.snapshot("start_build", **arguments)
    ended = await agent.end(started.build_id)
    assert ended.state is State.FAILED, ended.summary
    assert ended.error
    assert ended.error.hint
    assert ended.error.code.value in ended.summary
    return ended.error


async def test_a_model_that_is_not_there_or_no_file_is_refused(serve: Serve, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "empty.onnx").touch()
    os.mkfifo(root / "pipe.onnx")
    async with serve() as agent:
        missing = await agent.refusal("start_build", model="missing.onnx")
        folder = await agent.refusal("start_build", model="folder")
        empty = await agent.refusal("start_build", model="empty.onnx")
        fifo = await agent.refusal("start_build", model="pipe.onnx")
        listed = await agent.call("list_builds")
    assert missing.code is ErrorCode.MODEL_NOT_FOUND
    assert folder.code is ErrorCode.NOT_A_FILE
    assert empty.code is ErrorCode.MODEL_EMPTY
    assert fifo.code is ErrorCode.NOT_A_FILE
    assert listed.structured_content == {"builds": [], "left_out": 0}


@worker_judges
async def test_truncated_and_garbage_models_fail_as_invalid(
    serve: Serve, root: Path, models: Models
) -> None:
    (root / "garbage.onnx").write_bytes(os.urandom(5000))
    (root / "text.onnx").write_text("this is no model\n" * 50)
    (root / "truncated.onnx").write_bytes(models.quick.read_bytes()[:50_000])
    async with serve() as agent:
        for name in ("garbage.onnx", "text.onnx", "truncated.onnx"):
            error = await failure(agent, model=name)
            assert error.code is ErrorCode.INVALID_MODEL, name
    assert not list(root.glob("*.engine*"))


@worker_judges
async def test_every_unsupported_operator_is_named(serve: Serve, root: Path) -> None:
    save(
        root / "custom.onnx",
        [
            helper.make_node("Foo", ["x"], ["a"]),
            helper.make_node("Bar", ["a"], ["b"], domain="my.domain"),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("Foo", ["c"], ["y"]),
        ],
    )
    async with serve() as agent:
        error = await failure(agent, model="custom.onnx")
    assert error.code is ErrorCode.UNSUPPORTED_OPERATORS
    assert error.details["operators"] == ["Bar", "Foo"]
    assert "Bar" in error.message
    assert "Foo" in error.message


@worker_judges
async def test_an_operator_that_the_parser_only_shakes_its_head_at_is_named_too(
    serve: Serve, root: Path
) -> None:
    save(
        root / "sequence.onnx",
        [
            helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
            helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        ],
    )
    async with serve() as agent:
        error = await failure(agent, model="sequence.onnx")
    assert error.code is ErrorCode.UNSUPPORTED_OPERATORS
    assert error.details["operators"] == ["ConcatFromSequence", "SequenceConstruct"]


@worker_judges
async def test_missing_external_data_is_named(serve: Serve, root: Path) -> None:
    weight = numpy_helper.from_array(np.ones((1, 4), np.float32), "w")
    path = root / "external.onnx"
    save(path, [helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    async with serve() as agent:
        whole = await agent.end((await agent.snapshot("start_build", model=path.name)).build_id)
        (root / "weights.bin").rename(root / "elsewhere.bin")
        error = await failure(agent, model=path.name, output="second.engine")
    assert whole.state is State.SUCCEEDED
    assert error.code is ErrorCode.MISSING_EXTERNAL_DATA
    assert error.details["files"] == ["weights.bin"]
    assert "weights.bin" in error.message


@worker_judges
async def test_dynamic_inputs_without_a_profile_are_named_with_an_example(
    serve: Serve, root: Path
) -> None:
    save(root / "dynamic.onnx", [helper.make_node("Relu", ["x"], ["y"])], shape=["batch", 4])
    profile = {"x": {"min": [1, 4], "opt": [2, 4], "max": [8, 4]}}
    async with serve() as agent:
        error = await failure(agent, model="dynamic.onnx")
        with_profile = await agent.snapshot(
            "start_build", model="dynamic.onnx", options={"profiles": profile}
        )
        ended = await agent.end(with_profile.build_id)
        wrong = await failure(
            agent,
            model="dynamic.onnx",
            output="other.engine",
            options={"profiles": {"z": profile["x"]}},
        )
    assert error.code is ErrorCode.MISSING_PROFILE
    assert "x" in error.message
    assert '"min"' in error.hint
    assert ended.state is State.SUCCEEDED
    assert wrong.code is ErrorCode.INVALID_PROFILE


async def test_a_profile_whose_min_exceeds_its_max_is_refused(serve: Serve, root: Path) -> None:
    save(root / "dynamic.onnx", [helper.make_node("Relu", ["x"], ["y"])], shape=["batch", 4])
    async with serve() as agent:
        error = await agent.refusal(
            "start_build",
            model="dynamic.onnx",
            options={"profiles": {"x": {"min": [9, 4], "opt": [9, 4], "max": [2, 4]}}},
        )
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "min <= opt <= max" in error.message


@worker_judges
async def test_unknown_options_flags_and_levels_are_refused_with_the_valid_ones(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        option = await agent.refusal(
            "start_build", model="quick.onnx", options={"builder_optimisation_level": 3}
        )
        flag = await failure(agent, model="quick.onnx", options={"flags": ["FP16"]})
        level = await failure(agent, model="quick.onnx", options={"builder_optimization_level": 9})
        cache = await agent.refusal(
            "start_build",
            model="quick.onnx",
            backend="tensorrt_rtx",
            options={"timing_cache": "a.cache"},
        )
        hardware = await failure(
            agent, model="quick.onnx", options={"hardware_compatibility_level": "AMPERE_PLUS"}
        )
    assert option.code is ErrorCode.UNKNOWN_OPTION
    assert "'builder_optimization_level'" in option.hint
    assert flag.code is ErrorCode.UNKNOWN_OPTION
    assert isinstance(flag.details["valid"], list)
    assert "TF32" in flag.details["valid"]
    assert level.code is ErrorCode.UNSUPPORTED_OPTION
    assert "5" in level.message
    assert cache.code is ErrorCode.UNSUPPORTED_OPTION
    assert "backend tensorrt" in cache.hint
    assert hardware.code is ErrorCode.UNSUPPORTED_OPTION
    assert not list(root.glob("*.engine*"))


async def test_paths_outside_the_roots_are_refused_also_through_dots_and_links(
    serve: Serve, root: Path, models: Models, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(models.quick, outside / "model.onnx")
    shutil.copy(models.quick, root)
    (root / "link.onnx").symlink_to(outside / "model.onnx")
    (root / "linked").symlink_to(outside)
    async with serve() as agent:
        for model in (
            str(outside / "model.onnx"),
            "../outside/model.onnx",
            "link.onnx",
            "linked/model.onnx",
        ):
            error = await agent.refusal("start_build", model=model)
            assert error.code is ErrorCode.OUTSIDE_ROOTS, model
        for output in (
            str(outside / "a.engine"),
            "../outside/a.engine",
            "linked/a.engine",
        ):
            error = await agent.refusal("start_build", model="quick.onnx", output=output)
            assert error.code is ErrorCode.OUTSIDE_ROOTS, output
    assert sorted(path.name for path in outside.iterdir()) == ["model.onnx"]


@worker_judges
async def test_external_data_outside_the_roots_is_refused(serve: Serve, root: Path) -> None:
    weight = numpy_helper.from_array(np.ones((1, 4), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../secret"
    save(root / "escape.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])
    async with serve() as agent:
        error = await failure(agent, model="escape.onnx")
    assert error.code is ErrorCode.OUTSIDE_ROOTS


async def test_an_output_that_cannot_be_written_is_refused(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    (root / "there.engine").write_text("an older engine")
    (root / "folder").mkdir()
    async with serve() as agent:
        exists = await agent.refusal("start_build", model="quick.onnx", output="there.engine")
        no_folder = await agent.refusal("start_build", model="quick.onnx", output="no/a.engine")
        folder = await agent.refusal("start_build", model="quick.onnx", output="folder")
        first = await agent.snapshot("start_build", model="quick.onnx", output="a.engine")
        busy = await agent.refusal("start_build", model="quick.onnx", output="./a.engine")
        await agent.end(first.build_id)
        again = await agent.snapshot(
            "start_build", model="quick.onnx", output="there.engine", options={"overwrite": True}
        )
        assert (await agent.end(again.build_id)).state is State.SUCCEEDED
    assert exists.code is ErrorCode.OUTPUT_EXISTS
    assert no_folder.code is ErrorCode.OUTPUT_FOLDER_MISSING
    assert folder.code is ErrorCode.INVALID_ARGUMENT
    assert busy.code is ErrorCode.OUTPUT_BUSY
    assert (root / "there.engine").read_bytes()[:8] != b"an older"


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    """A real file system of 200 KiB under the root."""
    folder = root / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@kernel_refuses
async def test_a_full_disk_fails_the_build_and_leaves_nothing(
    serve: Serve, root: Path, models: Models, small_disk: Path
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        error = await failure(agent, model="quick.onnx", output="small/a.engine")
    assert error.code is ErrorCode.DISK_FULL
    assert not list(small_disk.iterdir())


@pytest.fixture
def read_only(root: Path) -> Iterator[Path]:
    """A real read-only file system under the root: root itself may write anywhere else."""
    folder = root / "read-only"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@kernel_refuses
async def test_a_folder_that_takes_no_file_is_refused(
    serve: Serve, root: Path, models: Models, read_only: Path
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        error = await agent.refusal(
            "start_build", model="quick.onnx", output=f"{read_only.name}/a.engine"
        )
    assert error.code is ErrorCode.OUTPUT_NOT_WRITABLE


@worker_judges
async def test_a_crash_in_native_code_is_told_as_one_and_the_next_build_runs(
    serve: Serve, root: Path, models: Models, tmp_path: Path
) -> None:
    shutil.copy(models.quick, root)
    source = tmp_path / "crash.c"
    source.write_text(
        "#include <signal.h>\n__attribute__((constructor)) static void crash(void)"
        " { raise(SIGSEGV); }\n"
    )
    library = tmp_path / "libcrash.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    async with serve("--allow-plugin", str(library)) as agent:
        started = await agent.snapshot(
            "start_build", model="quick.onnx", options={"plugins": [str(library)]}
        )
        crashed = await agent.end(started.build_id)
        following = await agent.snapshot("start_build", model="quick.onnx")
        ended = await agent.end(following.build_id)
    assert crashed.state is State.FAILED
    assert crashed.reason is Reason.WORKER_CRASH
    assert crashed.error
    assert "SIGSEGV" in crashed.error.message
    assert ended.state is State.SUCCEEDED


async def test_a_plugin_that_the_operator_did_not_allow_is_refused(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        error = await agent.refusal(
            "start_build", model="quick.onnx", options={"plugins": ["libplugin.so"]}
        )
    assert error.code is ErrorCode.PLUGIN_NOT_ALLOWED


async def test_absurd_arguments_are_refused_by_name(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        for tool, arguments, named in (
            ("get_progress", {"build_id": "b_0", "wait_s": 46}, "wait_s"),
            ("get_progress", {"build_id": "b_0", "wait_s": -1}, "wait_s"),
            ("get_progress", {"build_id": "b_0", "since_seq": -1}, "since_seq"),
            ("get_progress", {"build_id": "b_0", "detail": "all"}, "detail"),
            ("get_progress", {"build_id": 7}, "build_id"),
            ("get_progress", {}, "build_id"),
            ("get_log", {"build_id": "b_0", "tail": 0}, "tail"),
            ("get_log", {"build_id": "b_0", "tail": 10**9}, "tail"),
            ("list_builds", {"limit": -5}, "limit"),
            ("cancel_build", {"build_id": "b_0", "force": True}, "force"),
            ("start_build", {"model": "quick.onnx", "wait_s": 1e300}, "wait_s"),
            ("start_build", {"model": ""}, "model"),
            ("start_build", {"model": "a\0b"}, "model"),
            ("start_build", {"model": "x" * 5000}, "model"),
            ("start_build", {"model": "quick.onnx", "backend": "cuda"}, "backend"),
            ("start_build", {"model": "quick.onnx", "label": "two\nlines"}, "label"),
            (
                "start_build",
                {"model": "quick.onnx", "options": {"memory_pool_limits": {"WORKSPACE": -1}}},
                "WORKSPACE",
            ),
            (
                "start_build",
                {"model": "quick.onnx", "options": {"avg_timing_iterations": 0}},
                "avg_timing_iterations",
            ),
        ):
            error = await agent.refusal(tool, **arguments)
            assert error.code is ErrorCode.INVALID_ARGUMENT, (tool, arguments)
            assert named in error.message, (tool, arguments)


async def test_an_unknown_build_is_refused_by_every_tool(serve: Serve) -> None:
    async with serve() as agent:
        for tool in ("get_progress", "cancel_build", "get_log"):
            error = await agent.refusal(tool, build_id="b_0000000000000000")
            assert error.code is ErrorCode.UNKNOWN_BUILD


async def test_an_unknown_policy_and_a_path_for_one_are_refused(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        unknown = await agent.refusal("start_build", model="quick.onnx", policy="nice")
        path = await agent.refusal("start_build", model="quick.onnx", policy="/tmp/mine.toml")
    assert unknown.code is ErrorCode.UNKNOWN_POLICY
    assert unknown.details["valid"]
    assert path.code is ErrorCode.UNKNOWN_POLICY


async def test_the_replay_backend_is_off_unless_the_operator_turns_it_on(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.quick, root)
    async with serve() as agent:
        error = await agent.refusal("start_build", model="quick.onnx", backend="replay")
    assert error.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "--enable-replay" in error.hint
