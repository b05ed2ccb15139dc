"""Build options against the real TensorRT-RTX: what it takes is in effect, what it does not is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

import trt_agent_tools
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.model.options import BuildOptions

pytestmark = pytest.mark.tensorrt_rtx

SCRIPT = Path(__file__).with_name("apply_options.py")
SOURCES = Path(trt_agent_tools.__file__).parent.parent
LIMIT_S = 60

Options = dict[str, object]
Tensor = dict[str, object]

STATIC: Tensor = {"name": "x", "dtype": "float32", "shape": [2, 3]}
DYNAMIC: Tensor = {"name": "image", "dtype": "float32", "shape": [-1, 3, -1]}
ROWS: Tensor = {"name": "rows", "dtype": "float32", "shape": [-1, 4]}
TARGET: Tensor = {"name": "target", "dtype": "int32", "shape": [2]}

IMAGES = {"min": [1, 3, 8], "opt": [2, 3, 8], "max": [4, 3, 16]}


class Answer(BaseModel):
    """What the script says."""

    applied: list[tuple[str, JsonValue, JsonValue]]
    fault: ErrorInfo | None
    built: bool

    def refusal(self) -> ErrorInfo:
        assert self.fault is not None
        assert not self.built
        return self.fault


def apply(
    options: Options,
    *inputs: Tensor,
    reshape: bool = False,
    unchecked: bool = False,
    build: bool = False,
) -> Answer:
    """Apply `options` in a process of its own: this one never loads TensorRT."""
    order = {
        "options": options,
        "inputs": inputs or [STATIC],
        "reshape": reshape,
        "unchecked": unchecked,
        "build": build,
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Answer.model_validate_json(done.stdout)


TAKEN: Options = {
    "builder_optimization_level": 1,
    "max_aux_streams": 2,
    "avg_timing_iterations": 3,
    "max_num_tactics": 5,
    "l2_limit_for_tiling": 1 << 20,
    "tiling_optimization_level": "FAST",
    "profiling_verbosity": "DETAILED",
    "engine_capability": "STANDARD",
    "default_device_type": "GPU",
    "memory_pool_limits": {"WORKSPACE": 256 << 20, "TACTIC_SHARED_MEMORY": 1 << 16},
    "tactic_sources": ["JIT_CONVOLUTIONS"],
    "preview_features": ["ALIASED_PLUGIN_IO_10_03"],
    "compute_capabilities": ["SM120", "SM89"],
    "flags": ["DIRECT_IO", "STRICT_NANS"],
    "clear_flags": ["TF32"],
    "network_flags": ["STRONGLY_TYPED"],
    "parser_flags": ["REPORT_CAPABILITY_DLA"],
    "profiles": [{"image": IMAGES}],
}
REFUSED = {"hardware_compatibility_level", "runtime_platform", "DLA_core", "timing_cache"}
"""Options that are refused whatever they ask for beyond the default."""


def test_every_option_that_is_taken_is_in_effect_and_an_engine_comes_of_it() -> None:
    answer = apply(TAKEN, DYNAMIC, build=True)
    assert answer.fault is None
    assert {name for name, _, _ in answer.applied} == set(TAKEN)
    for name, requested, effective in answer.applied:
        assert effective == requested, name
        if name != "profiles":
            assert requested == TAKEN[name], name
    assert answer.built


def test_every_option_there_is_has_been_tried_here() -> None:
    assert set(BuildOptions.model_fields) == {*TAKEN, *REFUSED, "plugins", "overwrite", "reuse"}


def test_no_options_at_all_leave_everything_at_the_librarys_defaults() -> None:
    answer = apply({}, build=True)
    assert answer.fault is None
    assert answer.applied == []
    assert answer.built


@pytest.mark.parametrize(
    ("options", "asked", "effective"),
    [
        ({"builder_optimization_level": 9}, 9, 5),
        ({"hardware_compatibility_level": "AMPERE_PLUS"}, "AMPERE_PLUS", "NONE"),
        ({"runtime_platform": "WINDOWS_AMD64"}, "WINDOWS_AMD64", "SAME_AS_BUILD"),
        ({"DLA_core": 0}, 0, -1),
        ({"max_num_tactics": 0}, 0, -1),
        ({"max_aux_streams": 1 << 40}, 1 << 40, -1),
        ({"flags": ["SAFETY_SCOPE", "GPU_FALLBACK"]}, None, None),
        ({"memory_pool_limits": {"TACTIC_SHARED_MEMORY": 1 << 40}}, None, None),
        ({"memory_pool_limits": {"DLA_LOCAL_DRAM": 1 << 20}}, None, None),
        ({"compute_capabilities": ["NONE"]}, ["NONE"], ["NONE"]),
        ({"compute_capabilities": ["CURRENT", "SM89"]}, None, None),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_value_that_does_not_take_is_refused_with_what_is_in_effect(
    options: Options, asked: JsonValue, effective: JsonValue
) -> None:
    [name] = options
    answer = apply(options, build=True)
    fault = answer.refusal()
    assert fault.code is ErrorCode.UNSUPPORTED_OPTION
    assert name in fault.message
    [(reported, _, _)] = answer.applied
    assert reported == name
    if asked is not None:
        assert answer.applied == [(name, asked, effective)]
        assert f"asked for {json.dumps(asked)}, in effect {json.dumps(effective)}" in fault.message


def test_a_refusal_carries_the_librarys_own_words() -> None:
    fault = apply({"runtime_platform": "WINDOWS_AMD64"}).refusal()
    assert "The library's log says: IBuilderConfig::setRuntimePlatform" in fault.hint


def test_all_options_that_did_not_take_are_named_at_once() -> None:
    answer = apply({"builder_optimization_level": 9, "avg_timing_iterations": 2, "DLA_core": 1})
    fault = answer.refusal()
    refused = fault.details["refused"]
    assert isinstance(refused, list)
    assert [text.split(":")[0] for text in refused] == ["builder_optimization_level", "DLA_core"]
    assert ("avg_timing_iterations", 2, 2) in answer.applied


def test_a_flag_that_another_flag_turned_off_is_refused() -> None:
    answer = apply({"flags": ["REFIT", "REFIT_INDIVIDUAL"]})
    assert answer.refusal().code is ErrorCode.UNSUPPORTED_OPTION
    assert answer.applied == [("flags", ["REFIT", "REFIT_INDIVIDUAL"], ["REFIT_INDIVIDUAL"])]
    assert "mutually exclusive" in answer.refusal().hint


def test_an_unknown_flag_lists_the_valid_ones() -> None:
    fault = apply({"flags": ["TF_32"]}).refusal()
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert "TF_32" in fault.message
    assert "Did you mean TF32?" in fault.hint
    valid = fault.details["valid"]
    assert isinstance(valid, list)
    assert {"TF32", "REFIT", "STRIP_PLAN"} <= set(valid)


@pytest.mark.parametrize("option", ["network_flags", "parser_flags"])
def test_unknown_names_of_the_network_and_the_parser_are_refused_too(option: str) -> None:
    fault = apply({option: ["EXPLICIT_BATCH"]}).refusal()
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert fault.details["option"] == option
    assert "explicit batch" in fault.hint


def test_fp16_gets_told_that_precision_comes_from_the_model() -> None:
    fault = apply({"flags": ["FP16"]}).refusal()
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert "precision comes from the model" in fault.hint


def test_a_timing_cache_is_refused_because_it_is_without_effect_here() -> None:
    fault = apply({"timing_cache": "/tmp/timing.cache"}).refusal()
    assert fault.code is ErrorCode.UNSUPPORTED_OPTION
    assert fault.details["lacking"] == ["timing_cache"]


def test_a_flag_both_set_and_cleared_is_refused() -> None:
    fault = apply({"flags": ["TF32"], "clear_flags": ["TF32"]}).refusal()
    assert fault.code is ErrorCode.INVALID_ARGUMENT
    assert "TF32" in fault.message


def test_a_plugin_that_is_no_library_is_refused_by_name(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.so"
    plugin.write_text("no shared object")
    fault = apply({"plugins": [str(plugin)]}).refusal()
    assert fault.code is ErrorCode.INVALID_ARGUMENT
    assert str(plugin) in fault.message
    assert "The library's log says" in fault.hint


def test_dynamic_inputs_without_a_profile_are_all_named() -> None:
    fault = apply({}, DYNAMIC, STATIC, ROWS, build=True).refusal()
    assert fault.code is ErrorCode.MISSING_PROFILE
    assert fault.details["inputs"] == ["image: (-1, 3, -1)", "rows: (-1, 4)"]
    assert "image: (-1, 3, -1)" in fault.message
    assert "rows: (-1, 4)" in fault.message


def test_the_example_in_the_hint_is_a_profile_that_builds() -> None:
    fault = apply({}, DYNAMIC, ROWS).refusal()
    example = json.loads("{" + fault.hint[fault.hint.index('"profiles"') :] + "}")
    answer = apply(example, DYNAMIC, ROWS, build=True)
    assert answer.fault is None
    assert answer.built


def test_a_shape_tensor_needs_a_profile_and_its_example_is_taken() -> None:
    fault = apply({}, ROWS, TARGET, reshape=True).refusal()
    assert fault.code is ErrorCode.MISSING_PROFILE
    assert fault.details["inputs"] == ["rows: (-1, 4)", "target: (2,) shape tensor"]
    profile = {
        "rows": {"min": [1, 4], "opt": [4, 4], "max": [8, 4]},
        "target": {"min": [1, 4], "opt": [4, 4], "max": [8, 4]},
    }
    answer = apply({"profiles": profile}, ROWS, TARGET, reshape=True, build=True)
    assert answer.fault is None
    assert answer.applied == [("profiles", [json.dumps(profile)], [json.dumps(profile)])]
    assert answer.built


def test_several_profiles_are_all_applied() -> None:
    larger = {"min": [8, 3, 32], "opt": [8, 3, 32], "max": [8, 3, 64]}
    answer = apply({"profiles": [{"image": IMAGES}, {"image": larger}]}, DYNAMIC, build=True)
    assert answer.fault is None
    [(_, requested, effective)] = answer.applied
    assert requested == effective == [json.dumps({"image": IMAGES}), json.dumps({"image": larger})]
    assert answer.built


def test_a_static_input_may_be_in_a_profile_with_its_own_shape() -> None:
    same = {"min": [2, 3], "opt": [2, 3], "max": [2, 3]}
    answer = apply({"profiles": {"x": same}}, STATIC, build=True)
    assert answer.fault is None
    assert answer.built


def test_an_input_missing_from_one_of_several_profiles_is_named() -> None:
    rows = {"min": [1, 4], "opt": [2, 4], "max": [4, 4]}
    fault = apply(
        {"profiles": [{"image": IMAGES, "rows": rows}, {"image": IMAGES}]}, DYNAMIC, ROWS
    ).refusal()
    assert fault.code is ErrorCode.MISSING_PROFILE
    assert fault.details["inputs"] == ["rows: (-1, 4)"]


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ({"imag": IMAGES}, "the model has no input imag"),
        (
            {"image": {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}},
            "image has shape (-1, 3, -1), the profile gives 2 dimensions",
        ),
        (
            {"image": {"min": [1, 1, 8], "opt": [1, 3, 8], "max": [1, 3, 8]}},
            "dimension 1 is always 3, not (1, 3, 3)",
        ),
    ],
    ids=["unknown input", "wrong rank", "static dimension"],
)
def test_a_profile_that_does_not_fit_says_why_and_names_the_inputs(
    profile: Options, problem: str
) -> None:
    fault = apply({"profiles": profile}, DYNAMIC).refusal()
    assert fault.code is ErrorCode.INVALID_PROFILE
    assert problem in fault.message
    assert fault.details["inputs"] == ["image: (-1, 3, -1)"]


def test_a_misspelt_input_gets_the_name_that_was_meant() -> None:
    fault = apply({"profiles": {"imag": IMAGES}}, DYNAMIC).refusal()
    assert "Did you mean image?" in fault.hint


def test_too_few_values_for_a_shape_tensor_are_refused() -> None:
    profile = {
        "rows": {"min": [1, 4], "opt": [4, 4], "max": [8, 4]},
        "target": {"min": [1], "opt": [4], "max": [8]},
    }
    fault = apply({"profiles": profile}, ROWS, TARGET, reshape=True).refusal()
    assert fault.code is ErrorCode.INVALID_PROFILE
    assert "target is a shape tensor of 2 values, the profile gives 1" in fault.message


def test_a_profile_that_the_library_itself_rejects_is_refused() -> None:
    """TensorRT raises nothing here: it returns the index -1."""
    upside_down = {"min": [4, 3, 8], "opt": [2, 3, 8], "max": [1, 3, 8]}
    fault = apply({"profiles": [{"image": upside_down}]}, DYNAMIC, unchecked=True).refusal()
    assert fault.code is ErrorCode.INVALID_PROFILE
    assert "min <= opt <= max" in fault.hint
