import json
from pathlib import Path

import pytest

from trt_agent_tools.cli.request import folders_of, make_request
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.options import BuildOptions, ShapeRange
from trt_agent_tools.model.request import Backend

MODEL = Path("/models/a.onnx")


def refused(**arguments: object) -> ErrorInfo:
    with pytest.raises(Refusal) as caught:
        make_request(MODEL, **arguments)  # type: ignore[arg-type]
    return caught.value.info


def test_the_least_is_a_model() -> None:
    request = make_request(MODEL)

    assert request.model == "/models/a.onnx"
    assert request.output is None
    assert request.backend is Backend.AUTO
    assert request.options == BuildOptions()


def test_relative_paths_are_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    request = make_request(Path("a.onnx"), output=Path("out/a.engine"))

    assert request.model == str(tmp_path / "a.onnx")
    assert request.output == str(tmp_path / "out" / "a.engine")


def test_paths_among_the_options_are_from_the_current_folder_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    options = make_request(MODEL, options=["timing_cache=a.cache", 'plugins=["a.so"]']).options

    assert options.timing_cache == str(tmp_path / "a.cache")
    folder = make_request(MODEL, options=["timing_cache=caches/"]).options.timing_cache
    assert folder == f"{tmp_path / 'caches'}/"
    assert options.plugins == [str(tmp_path / "a.so")]


def test_overwriting_is_asked_for_on_the_command_line() -> None:
    assert make_request(MODEL, overwrite=True).options.overwrite is True


def test_option_values_are_json_where_they_can_be_and_text_elsewhere() -> None:
    options = make_request(
        MODEL,
        options=[
            "builder_optimization_level=2",
            'flags=["TF32"]',
            "profiling_verbosity=DETAILED",
            'memory_pool_limits={"WORKSPACE": "1GiB"}',
        ],
    ).options

    assert options.builder_optimization_level == 2
    assert options.flags == ["TF32"]
    assert options.profiling_verbosity == "DETAILED"
    assert options.memory_pool_limits == {"WORKSPACE": 1 << 30}


def test_an_option_wins_over_the_options_file(tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"builder_optimization_level": 1, "flags": ["TF32"]}))

    options = make_request(
        MODEL, options=["builder_optimization_level=4"], options_file=file
    ).options

    assert options.builder_optimization_level == 4
    assert options.flags == ["TF32"]


def test_profiles_of_several_inputs_make_one_profile() -> None:
    options = make_request(MODEL, profiles=["x=1x3:4x3:8x3", "input:0=2:2:2"]).options

    assert options.profiles == [
        {
            "x": ShapeRange(min=[1, 3], opt=[4, 3], max=[8, 3]),
            "input:0": ShapeRange(min=[2], opt=[2], max=[2]),
        }
    ]


def test_a_name_with_an_equals_sign_can_have_a_profile() -> None:
    (profile,) = make_request(MODEL, profiles=["a=b=1:2:3"]).options.profiles

    assert list(profile) == ["a=b"]


@pytest.mark.parametrize(
    "text", ["x", "x=", "x=1x3", "x=1:2", "x=1:2:3:4", "x=1x:2:3", "x=-1:2:3", "=1:2:3", "x=a:b:c"]
)
def test_a_profile_that_is_not_understood_is_refused_with_an_example(text: str) -> None:
    error = refused(profiles=[text])

    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert text in error.message
    assert "x=1x3x224x224:4x3x224x224:8x3x224x224" in error.hint


def test_one_input_cannot_have_two_ranges_in_one_profile() -> None:
    assert "twice" in refused(profiles=["x=1:1:1", "x=2:2:2"]).message


def test_a_profile_whose_minimum_is_above_its_maximum_is_refused() -> None:
    error = refused(profiles=["x=8x3:4x3:1x3"])

    assert error.code is ErrorCode.INVALID_PROFILE
    assert "min <= opt <= max" in error.message


def test_an_unknown_option_is_refused_and_the_valid_ones_listed() -> None:
    error = refused(options=["workspace=1"])

    assert error.code is ErrorCode.UNKNOWN_OPTION
    assert "'workspace'" in error.message
    assert "memory_pool_limits" in error.hint
    assert "builder_optimization_level" in error.hint


@pytest.mark.parametrize("text", ["builder_optimization_level", "=2", ""])
def test_an_option_without_name_or_value_is_refused(text: str) -> None:
    assert "NAME=VALUE" in refused(options=[text]).message


def test_an_option_value_of_the_wrong_type_is_refused_and_the_option_named() -> None:
    error = refused(options=["flags=TF32"])

    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "flags" in error.message
    assert "JSON" in error.hint


def test_an_unknown_backend_is_refused_and_the_valid_ones_listed() -> None:
    message = refused(backend="cuda").message

    assert "backend" in message
    assert "tensorrt_rtx" in message


@pytest.mark.parametrize("content", ["", "[1]", "{", "\xff"])
def test_an_options_file_without_an_object_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "options.json"
    file.write_bytes(content.encode("latin-1"))

    assert str(file) in refused(options_file=file).message


def test_an_options_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "options-file" in refused(options_file=tmp_path / "none.json").message


def test_the_folders_are_those_of_the_files_named(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "a.onnx").touch()
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "a.onnx").symlink_to(real / "a.onnx")

    request = make_request(linked / "a.onnx", output=tmp_path / "out" / "a.engine")

    assert folders_of(request) == (linked, real, tmp_path / "out")


def test_limits_are_taken_by_rule_and_those_of_phases_by_pattern() -> None:
    request = make_request(
        MODEL,
        limits=[
            "build_time=20m",
            "silent=90",
            "host_memory=16GiB",
            "projected_overrun=1.5",
            "phase_time:Timing tactics=5m",
            "phase_time:Building > a=b > *=1.5",
        ],
    )

    assert request.limits == {
        "build_time": "20m",
        "silent": 90,
        "host_memory": "16GiB",
        "projected_overrun": 1.5,
        "phase_time": {"Timing tactics": "5m", "Building > a=b > *": 1.5},
    }


@pytest.mark.parametrize(
    "limits",
    [
        ["build_time"],
        ["build_time="],
        ["build_time= "],
        ["=20m"],
        [""],
        ["phase_time=20m"],
        ["phase_time:=20m"],
        ["build_time=1m", "build_time=2m"],
        ["phase_time:a=1m", "phase_time:a=2m"],
    ],
)
def test_a_limit_that_is_not_understood_is_refused_with_an_example(limits: list[str]) -> None:
    info = refused(limits=limits)

    assert info.code is ErrorCode.INVALID_ARGUMENT
    assert limits[-1] in info.message
    assert "build_time=20m" in info.hint
