"""A request is refused before anything starts, in words that help, whatever its paths are."""

import importlib.util
import os
import socket
import stat
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.supervisor.admission import TEMPORARY_BYTES, Admitted, admit, choose_backend
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import Device

CPU = (Device("cpu", "none"),)
GPU = (Device("gpu0", "one", "0"),)
CONTENT = b"not empty; what is in it is the parser's to judge"


class Desk:
    """Where requests are judged: a root with a model in it, and a folder outside."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root = root
        self.outside = outside
        self.model = self.file("m.onnx")
        self.config = SupervisorConfig(state_dir=outside, roots=(root,), enable_replay=True)

    def file(self, name: str) -> Path:
        path = self.root / name
        path.write_bytes(CONTENT)
        return path

    def admit(
        self,
        model: str | Path = "m.onnx",
        output: str | Path | None = None,
        **options: object,
    ) -> Admitted:
        request = StartRequest(
            model=str(model),
            output=None if output is None else str(output),
            backend=Backend.REPLAY,
            options=BuildOptions.model_validate(options),
        )
        return admit(request, self.config, CPU)

    def refusal(
        self, model: str | Path = "m.onnx", output: str | Path | None = None, **options: object
    ) -> ErrorCode:
        """Return the code of a refusal that also says what happened and what to do."""
        before = sorted(self.root.rglob("*"))
        with pytest.raises(Refusal) as refused:
            self.admit(model, output, **options)
        assert refused.value.info.message
        assert refused.value.info.hint
        assert sorted(self.root.rglob("*")) == before
        return refused.value.info.code


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    real = tmp_path.resolve()
    (real / "root").mkdir()
    (real / "outside").mkdir()
    return Desk(real / "root", real / "outside")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a socket is short; the current folder of the test is not.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device file needs root")


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a fifo": os.mkfifo,
    "a socket": make_socket,
    "a device": make_device,
}


# What is admitted.


def test_a_plain_request_is_admitted_with_absolute_paths(desk: Desk) -> None:
    admitted = desk.admit()
    assert admitted.model == desk.model
    assert admitted.output == desk.root / "m.engine"
    assert admitted.manifest == desk.root / "m.engine.json"
    assert admitted.backend == "replay"


@pytest.mark.parametrize(
    "written", ["m.onnx", "./m.onnx", "sub/../m.onnx", "../root/m.onnx", "sub/./../m.onnx"]
)
def test_relative_paths_and_dots_lead_to_the_same_model(desk: Desk, written: str) -> None:
    (desk.root / "sub").mkdir()
    assert desk.admit(written).model == desk.admit(desk.model).model == desk.model


def test_relative_paths_start_at_the_first_root(desk: Desk) -> None:
    second = desk.outside / "second"
    second.mkdir()
    (second / "m.onnx").write_bytes(CONTENT)
    desk.config = SupervisorConfig(
        state_dir=desk.outside, roots=(desk.root, second), enable_replay=True
    )
    request = StartRequest(model="m.onnx", output=str(second / "x"), backend=Backend.REPLAY)
    admitted = admit(request, desk.config, CPU)
    assert (admitted.model, admitted.output) == (desk.model, second / "x")


def test_symbolic_links_inside_the_roots_are_followed(desk: Desk) -> None:
    (desk.root / "real").mkdir()
    (desk.root / "folder").symlink_to("real")
    (desk.root / "latest.onnx").symlink_to("m.onnx")
    admitted = desk.admit("latest.onnx", "folder/x.engine")
    # The model keeps its name: sidecars lie beside the link's name for the parser too.
    assert admitted.model == desk.root / "latest.onnx"
    assert admitted.output == desk.root / "real" / "x.engine"


def test_an_engine_that_is_there_is_replaced_only_on_request(desk: Desk) -> None:
    desk.file("m.engine")
    assert desk.refusal() is ErrorCode.OUTPUT_EXISTS
    assert desk.admit(overwrite=True).output == desk.root / "m.engine"


# Models.


@pytest.mark.parametrize("name", ["missing.onnx", "no/such/folder.onnx", "m.onnx/inside.onnx"])
def test_a_model_that_is_not_there_is_said_to_be_missing(desk: Desk, name: str) -> None:
    assert desk.refusal(name) is ErrorCode.MODEL_NOT_FOUND


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_model_that_is_no_regular_file_is_refused_without_opening_it(
    desk: Desk, kind: str
) -> None:
    SPECIAL[kind](desk.root / "x.onnx")
    assert desk.refusal("x.onnx") is ErrorCode.NOT_A_FILE
    (desk.root / "link.onnx").symlink_to("x.onnx")
    assert desk.refusal("link.onnx") is ErrorCode.NOT_A_FILE


@pytest.mark.parametrize("name", [".", "..", "/", "sub/..", ""])
def test_a_root_or_what_is_above_it_is_no_model(desk: Desk, name: str) -> None:
    (desk.root / "sub").mkdir()
    if not name:
        with pytest.raises(ValidationError):
            desk.admit(name)
    else:
        assert desk.refusal(name) in {ErrorCode.NOT_A_FILE, ErrorCode.OUTSIDE_ROOTS}


def test_an_empty_model_is_refused(desk: Desk) -> None:
    (desk.root / "empty.onnx").touch()
    assert desk.refusal("empty.onnx") is ErrorCode.MODEL_EMPTY


# Roots.


def test_a_path_outside_the_roots_is_refused_whether_it_is_there_or_not(desk: Desk) -> None:
    (desk.outside / "m.onnx").write_bytes(CONTENT)
    for model in (desk.outside / "m.onnx", desk.outside / "none.onnx", "../outside/m.onnx"):
        assert desk.refusal(model) is ErrorCode.OUTSIDE_ROOTS
    for output in (desk.outside / "x.engine", "../x.engine", "../root2/x.engine", "/x.engine"):
        assert desk.refusal("m.onnx", output) is ErrorCode.OUTSIDE_ROOTS


def test_a_folder_whose_name_begins_like_a_root_is_outside(desk: Desk) -> None:
    twin = desk.root.with_name("root-twin")
    twin.mkdir()
    (twin / "m.onnx").write_bytes(CONTENT)
    assert desk.refusal(twin / "m.onnx") is ErrorCode.OUTSIDE_ROOTS


def test_links_out_of_the_roots_are_refused(desk: Desk) -> None:
    (desk.outside / "m.onnx").write_bytes(CONTENT)
    (desk.root / "file.onnx").symlink_to(desk.outside / "m.onnx")
    (desk.root / "dangling.onnx").symlink_to(desk.outside / "none.onnx")
    (desk.root / "folder").symlink_to(desk.outside)
    (desk.root / "chain.onnx").symlink_to("file.onnx")
    for model in ("file.onnx", "dangling.onnx", "chain.onnx", "folder/m.onnx"):
        assert desk.refusal(model) is ErrorCode.OUTSIDE_ROOTS
    for output in ("folder/x.engine", "dangling.onnx", "folder/../x.engine"):
        assert desk.refusal("m.onnx", output) is ErrorCode.OUTSIDE_ROOTS


def test_dots_after_a_link_lead_where_the_system_leads_them(desk: Desk) -> None:
    # root/folder/../m.onnx is outside/m.onnx's neighbour, not root/m.onnx.
    (desk.outside / "deep").mkdir()
    (desk.root / "folder").symlink_to(desk.outside / "deep")
    assert desk.refusal("folder/../m.onnx") is ErrorCode.OUTSIDE_ROOTS


def test_a_loop_of_links_is_refused(desk: Desk) -> None:
    (desk.root / "a").symlink_to("b")
    (desk.root / "b").symlink_to("a")
    looped = {ErrorCode.INVALID_ARGUMENT, ErrorCode.MODEL_UNREADABLE}
    assert desk.refusal("a") in looped
    assert desk.refusal("a/m.onnx") in looped
    assert desk.refusal("m.onnx", "a") in {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.OUTPUT_NOT_WRITABLE,
    }
    assert desk.refusal("m.onnx", "a/x.engine") in {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.OUTPUT_FOLDER_MISSING,
    }


def test_a_link_to_nothing_inside_the_roots_is_no_model_and_no_output(desk: Desk) -> None:
    (desk.root / "dangling").symlink_to("nothing")
    assert desk.refusal("dangling") is ErrorCode.MODEL_NOT_FOUND
    assert desk.refusal("m.onnx", "dangling") is ErrorCode.OUTPUT_NOT_WRITABLE
    assert desk.refusal("m.onnx", "dangling", overwrite=True) is ErrorCode.OUTPUT_NOT_WRITABLE


# Outputs.


@pytest.mark.parametrize("output", ["none/x.engine", "none/deeper/x.engine", "m.onnx/x.engine"])
def test_the_outputs_folder_must_be_there(desk: Desk, output: str) -> None:
    assert desk.refusal("m.onnx", output) is ErrorCode.OUTPUT_FOLDER_MISSING


@pytest.mark.parametrize("output", ["sub", "sub/", ".", "sub/.."])
def test_an_output_that_is_a_folder_is_refused(desk: Desk, output: str) -> None:
    (desk.root / "sub").mkdir()
    assert desk.refusal("m.onnx", output) is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in SPECIAL if kind != "a folder"])
@pytest.mark.parametrize("name", ["x.engine", "x.engine.json"])
def test_special_files_are_never_replaced(
    desk: Desk, kind: str, name: str, overwrite: bool
) -> None:
    SPECIAL[kind](desk.root / name)
    refused = desk.refusal("m.onnx", "x.engine", overwrite=overwrite)
    assert refused is ErrorCode.OUTPUT_NOT_WRITABLE


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["x.engine", "x.engine.json"])
def test_a_link_is_never_written_through_or_replaced(
    desk: Desk, name: str, overwrite: bool
) -> None:
    target = desk.file("precious")
    (desk.root / name).symlink_to(target)
    refused = desk.refusal("m.onnx", "x.engine", overwrite=overwrite)
    assert refused is ErrorCode.OUTPUT_NOT_WRITABLE


def test_a_folder_where_the_manifest_goes_is_refused(desk: Desk) -> None:
    (desk.root / "m.engine.json").mkdir()
    assert desk.refusal() is ErrorCode.OUTPUT_NOT_WRITABLE


def test_a_file_where_the_manifest_goes_is_replaced_only_on_request(desk: Desk) -> None:
    desk.file("m.engine.json")
    assert desk.refusal() is ErrorCode.OUTPUT_EXISTS
    assert desk.admit(overwrite=True).manifest == desk.root / "m.engine.json"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("output", ["m.onnx", "./m.onnx", "sub/../m.onnx", "folder/m.onnx"])
def test_the_model_is_never_its_own_output(desk: Desk, output: str, overwrite: bool) -> None:
    (desk.root / "sub").mkdir()
    (desk.root / "folder").symlink_to(".")
    assert desk.refusal("m.onnx", output, overwrite=overwrite) is ErrorCode.INVALID_ARGUMENT


def test_the_model_is_not_replaced_under_any_of_its_names(desk: Desk) -> None:
    (desk.root / "link.onnx").symlink_to("m.onnx")
    os.link(desk.model, desk.root / "second.onnx")
    for model, output in (("link.onnx", "m.onnx"), ("m.onnx", "second.onnx")):
        assert desk.refusal(model, output, overwrite=True) is ErrorCode.INVALID_ARGUMENT


def test_a_model_called_engine_is_not_replaced_by_default(desk: Desk) -> None:
    desk.file("x.engine")
    assert desk.refusal("x.engine", overwrite=True) is ErrorCode.INVALID_ARGUMENT


def test_the_model_is_not_replaced_by_the_manifest(desk: Desk) -> None:
    desk.file("x.engine.json")
    refused = desk.refusal("x.engine.json", "x.engine", overwrite=True)
    assert refused is ErrorCode.INVALID_ARGUMENT


def test_an_output_whose_temporary_files_would_not_fit_is_refused_before_the_build(
    desk: Desk,
) -> None:
    longest = os.pathconf(desk.root, "PC_NAME_MAX")
    for length in (longest - TEMPORARY_BYTES + 1, longest, longest + 1, 4000):
        assert desk.refusal("m.onnx", "x" * length) is ErrorCode.INVALID_ARGUMENT
    # In bytes, not in characters.
    assert desk.refusal("m.onnx", "é" * (longest // 2)) is ErrorCode.INVALID_ARGUMENT
    output = desk.admit("m.onnx", "x" * (longest - TEMPORARY_BYTES)).output
    # As the supervisor names them.
    for name in (f"{output.name}.json", f".{output.name}.b_0123456789abcdef.json.partial"):
        (output.parent / name).touch()


def test_an_output_in_a_folder_too_deep_for_temporary_files_is_refused(desk: Desk) -> None:
    folder = desk.root
    while len(str(folder)) < 4096 - 100:
        folder /= "d" * 90
    folder.mkdir(parents=True)
    room = 4095 - len(str(folder)) - 1
    output = "x" * (room - TEMPORARY_BYTES // 2)
    assert desk.refusal("m.onnx", folder / output) is ErrorCode.INVALID_ARGUMENT


def test_a_path_that_is_no_utf8_behind_a_link_is_refused(desk: Desk) -> None:
    odd = desk.root / os.fsdecode(b"\xff")
    odd.mkdir()
    (desk.root / "plain").symlink_to(odd)
    (desk.root / "plain" / "m.onnx").write_bytes(CONTENT)
    assert desk.refusal("plain/m.onnx") is ErrorCode.INVALID_ARGUMENT
    assert desk.refusal("m.onnx", "plain/x.engine") is ErrorCode.INVALID_ARGUMENT


parts = st.sampled_from(
    ["..", ".", "m.onnx", "sub", "up", "loop", "out", "\x1b[31m", "x" * 300, "é", " ", "nul"]
)
paths = st.lists(parts, min_size=1, max_size=6).map("/".join)


@given(paths, paths, st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_path_is_judged_and_none_that_is_admitted_leads_out(
    desk: Desk, model: str, output: str, overwrite: bool
) -> None:
    if not (desk.root / "sub").exists():
        (desk.root / "sub").mkdir()
        (desk.root / "sub" / "up").symlink_to("..")
        (desk.root / "loop").symlink_to("loop")
        (desk.root / "out").symlink_to(desk.outside)
        (desk.outside / "m.onnx").write_bytes(CONTENT)
    told = ""
    try:
        admitted: Admitted | None = desk.admit(model, output, overwrite=overwrite)
    except Refusal as refused:
        told, admitted = refused.info.message, None
    if admitted is None:
        assert "\x1b" not in told
        return
    assert admitted.model.resolve().is_relative_to(desk.root)
    assert admitted.output.resolve().is_relative_to(desk.root)
    assert admitted.output.parent == admitted.output.parent.resolve()
    assert not (admitted.output.exists() and admitted.output.samefile(admitted.model))


# Plugins and the timing cache.


def test_no_plugin_is_loaded_that_the_operator_did_not_allow(desk: Desk) -> None:
    plugin = desk.file("good.so")
    desk.file("evil.so")
    (desk.root / "alias.so").symlink_to("good.so")
    (desk.root / "trap.so").symlink_to("evil.so")
    assert desk.refusal(plugins=["good.so"]) is ErrorCode.PLUGIN_NOT_ALLOWED
    desk.config = SupervisorConfig(
        state_dir=desk.outside, roots=(desk.root,), enable_replay=True, allowed_plugins=(plugin,)
    )
    for evil in ("evil.so", "trap.so", "libc.so.6", "", "a\0b", "good.so/../evil.so"):
        assert desk.refusal(plugins=["good.so", evil]) is ErrorCode.PLUGIN_NOT_ALLOWED
    # The worker is given the file that was judged, not a name that the loader would search for.
    for good in ("good.so", "alias.so", str(plugin)):
        assert desk.admit(plugins=[good]).options.plugins == [str(plugin)]


def test_the_worker_is_given_the_timing_cache_that_was_judged(desk: Desk) -> None:
    assert desk.admit().options.timing_cache is None
    for written in ("cache.bin", "./cache.bin", str(desk.root / "cache.bin")):
        options = desk.admit(timing_cache=written).options
        assert options.timing_cache == str(desk.root / "cache.bin")


def test_a_timing_cache_outside_the_roots_is_refused(desk: Desk) -> None:
    (desk.root / "link.bin").symlink_to(desk.outside / "cache.bin")
    for cache in ("../cache.bin", "/tmp/cache.bin", "link.bin"):
        assert desk.refusal(timing_cache=cache) is ErrorCode.OUTSIDE_ROOTS
    assert desk.refusal(timing_cache="a\0b") is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("cache", ["m.onnx", "m.engine", "m.engine.json", "link.onnx"])
def test_a_timing_cache_is_no_file_that_the_build_has_another_use_for(
    desk: Desk, cache: str
) -> None:
    (desk.root / "link.onnx").symlink_to("m.onnx")
    assert desk.refusal(timing_cache=cache) is ErrorCode.INVALID_ARGUMENT


def test_a_timing_cache_may_be_a_folder_that_is_there(desk: Desk) -> None:
    (desk.root / "caches").mkdir()
    for written in ("caches", "caches/", str(desk.root / "caches")):
        assert desk.admit(timing_cache=written).options.timing_cache == str(desk.root / "caches")
    for missing in ("none/cache.bin", "none/"):
        assert desk.refusal(timing_cache=missing) is ErrorCode.OUTPUT_FOLDER_MISSING


@pytest.mark.parametrize("kind", ["a fifo", "a socket"])
def test_a_timing_cache_that_is_there_is_a_file_or_a_folder(desk: Desk, kind: str) -> None:
    SPECIAL[kind](desk.root / "cache.bin")
    assert desk.refusal(timing_cache="cache.bin") is ErrorCode.NOT_A_FILE


def test_a_timing_cache_is_refused_before_anything_starts_where_it_has_no_effect(
    desk: Desk, installed: Callable[..., None]
) -> None:
    installed("tensorrt", "tensorrt_rtx")
    options = BuildOptions(timing_cache="cache.bin")
    request = StartRequest(model="m.onnx", backend=Backend.TENSORRT_RTX, options=options)
    with pytest.raises(Refusal) as refused:
        admit(request, desk.config, GPU)
    assert refused.value.info.code is ErrorCode.UNSUPPORTED_OPTION
    assert "backend tensorrt" in refused.value.info.hint
    for backend in (Backend.TENSORRT, Backend.AUTO):
        admitted = admit(request.model_copy(update={"backend": backend}), desk.config, GPU)
        assert admitted.options.timing_cache == str(desk.root / "cache.bin")


# Backends.


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes exactly these libraries look installed."""

    def install(*names: str) -> None:
        def find(name: str) -> ModuleSpec | None:
            return ModuleSpec(name, None) if name in names else None

        monkeypatch.setattr(importlib.util, "find_spec", find)

    return install


@pytest.mark.parametrize(
    ("names", "devices", "chosen"),
    [
        (("tensorrt", "tensorrt_rtx"), GPU, "tensorrt"),
        (("tensorrt", "tensorrt_rtx"), CPU, "tensorrt_rtx"),
        (("tensorrt_rtx",), GPU, "tensorrt_rtx"),
        (("tensorrt",), GPU, "tensorrt"),
    ],
)
def test_auto_takes_classic_tensorrt_where_it_and_a_gpu_are(
    desk: Desk,
    installed: Callable[..., None],
    names: tuple[str, ...],
    devices: tuple[Device, ...],
    chosen: str,
) -> None:
    installed(*names)
    assert choose_backend(Backend.AUTO, desk.config, devices) == chosen


@pytest.mark.parametrize(
    ("wanted", "names", "hint"),
    [
        (Backend.TENSORRT, ("tensorrt_rtx",), "trt-agent-tools[tensorrt]"),
        (Backend.TENSORRT_RTX, ("tensorrt",), "tensorrt-rtx"),
        (Backend.AUTO, (), "tensorrt-rtx"),
        (Backend.AUTO, ("tensorrt",), "tensorrt-rtx"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(
    desk: Desk,
    installed: Callable[..., None],
    wanted: Backend,
    names: tuple[str, ...],
    hint: str,
) -> None:
    installed(*names)
    with pytest.raises(Refusal) as refused:
        choose_backend(wanted, desk.config, CPU)
    assert refused.value.info.code is ErrorCode.BACKEND_UNAVAILABLE
    assert hint in refused.value.info.hint


def test_replay_is_off_unless_the_operator_turned_it_on(desk: Desk) -> None:
    desk.config = SupervisorConfig(state_dir=desk.outside, roots=(desk.root,))
    assert desk.refusal() is ErrorCode.BACKEND_UNAVAILABLE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_are_found_out_before_the_build(desk: Desk) -> None:
    desk.model.chmod(0)
    assert desk.refusal() is ErrorCode.MODEL_UNREADABLE
    desk.model.chmod(0o600)
    desk.root.chmod(0o500)
    try:
        assert desk.refusal() is ErrorCode.OUTPUT_NOT_WRITABLE
    finally:
        desk.root.chmod(0o700)
