"""What is detected on, and asked of, the real API of classic TensorRT, which is not built with here."""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.options import BuildOptions

if TYPE_CHECKING:
    from tests.unit.worker.conftest import Probed, Site

SiteOf = Callable[[str], "Site"]

EVERY = pytest.mark.parametrize("version", ["10.0", "10.16", "11.4"])
SINCE_10_16 = pytest.mark.parametrize("version", ["10.16", "11.4"])

ONLY_RTX = {"compute_capabilities"}
SINCE_10_16_OPTIONS = {
    "l2_limit_for_tiling",
    "max_num_tactics",
    "runtime_platform",
    "tiling_optimization_level",
}
OWN = {"overwrite", "reuse"}
"""Options that are this project's and no library's."""


def only_fault(probed: "Probed") -> ErrorInfo:
    [fault] = probed.faults
    assert fault is not None
    return fault


@EVERY
def test_versions_and_the_library_really_loaded_are_told(site_of: SiteOf, version: str) -> None:
    site = site_of(version)
    probed = site.probe()
    assert probed.versions == {"tensorrt": site.version, "python": platform.python_version()}
    assert site.libraries
    [native] = site.libraries.glob("libnvinfer.so.*")
    assert probed.path == str(native)


@EVERY
def test_progress_and_cancel_are_offered(site_of: SiteOf, version: str) -> None:
    capabilities = site_of(version).probe().capabilities
    assert capabilities.progress
    assert capabilities.cooperative_cancel


@EVERY
def test_without_a_gpu_it_is_said_that_its_operators_are_not_known(
    site_of: SiteOf, version: str
) -> None:
    assert "only on a GPU" in site_of(version).probe().operators


def test_10_0_lacks_exactly_the_options_that_came_later(site_of: SiteOf) -> None:
    expected = set(BuildOptions.model_fields) - ONLY_RTX - SINCE_10_16_OPTIONS - OWN
    assert set(site_of("10.0").probe().capabilities.options) == expected


@SINCE_10_16
def test_10_16_and_later_have_every_option_but_those_of_rtx(site_of: SiteOf, version: str) -> None:
    expected = set(BuildOptions.model_fields) - ONLY_RTX - OWN
    assert set(site_of(version).probe().capabilities.options) == expected


@EVERY
def test_names_are_offered_only_for_options_that_are_there(site_of: SiteOf, version: str) -> None:
    capabilities = site_of(version).probe().capabilities
    assert set(capabilities.choices) <= set(capabilities.options)
    assert all(capabilities.choices.values())


def test_fp16_flag_is_offered_by_10_and_refused_by_11_with_the_valid_names(
    site_of: SiteOf,
) -> None:
    for version in ("10.0", "10.16"):
        probed = site_of(version).probe({"flags": ["FP16"]})
        assert probed.faults == [None]
    fault = only_fault(site_of("11.4").probe({"flags": ["FP16", "TF32"]}))
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert "FP16" in fault.message
    assert "TF32" not in fault.message
    assert "strongly typed" in fault.hint
    valid = fault.details["valid"]
    assert isinstance(valid, list)
    assert {"TF32", "REFIT", "STRIP_PLAN"} <= set(valid)
    assert "FP16" not in valid


def test_explicit_batch_is_taken_by_10_and_explained_by_11(site_of: SiteOf) -> None:
    asked: dict[str, object] = {"network_flags": ["EXPLICIT_BATCH"]}
    assert site_of("10.16").probe(asked).faults == [None]
    fault = only_fault(site_of("11.4").probe(asked))
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert "explicit batch" in fault.hint


@EVERY
def test_compute_capabilities_are_refused_by_classic_tensorrt(
    site_of: SiteOf, version: str
) -> None:
    fault = only_fault(site_of(version).probe({"compute_capabilities": ["SM89"]}))
    assert fault.code is ErrorCode.UNSUPPORTED_OPTION
    assert fault.details["lacking"] == ["compute_capabilities"]
    has = fault.details["options"]
    assert isinstance(has, list)
    assert "flags" in has


def test_max_num_tactics_is_refused_by_10_0_and_taken_by_10_16(site_of: SiteOf) -> None:
    asked: dict[str, object] = {"max_num_tactics": 3, "tiling_optimization_level": "FAST"}
    fault = only_fault(site_of("10.0").probe(asked))
    assert fault.code is ErrorCode.UNSUPPORTED_OPTION
    assert fault.details["lacking"] == ["max_num_tactics", "tiling_optimization_level"]
    assert site_of("10.16").probe(asked).faults == [None]


@EVERY
def test_a_timing_cache_is_taken_by_classic_tensorrt(site_of: SiteOf, version: str) -> None:
    assert site_of(version).probe({"timing_cache": "/some/file"}).faults == [None]


@EVERY
def test_timing_caches_are_called_as_the_library_takes_them(site_of: SiteOf, version: str) -> None:
    create, use, get, combine, serialize = site_of(version).probe().signatures
    assert "serialized_timing_cache: " in create
    assert "ITimingCache, ignore_mismatch: bool) -> bool" in use
    assert get.endswith("ITimingCache")
    assert "ITimingCache, ignore_mismatch: bool) -> bool" in combine
    assert "(self" in serialize
    for argument, signature in (("cache", use), ("input_cache", combine)):
        assert f" {argument}: " in signature


@EVERY
def test_a_misspelt_flag_gets_the_name_that_was_meant(site_of: SiteOf, version: str) -> None:
    fault = only_fault(site_of(version).probe({"flags": ["striped_plan"]}))
    assert fault.code is ErrorCode.UNKNOWN_OPTION
    assert "Did you mean STRIP_PLAN?" in fault.hint


@EVERY
def test_a_name_that_no_version_has_is_refused_wherever_names_are_taken(
    site_of: SiteOf, version: str
) -> None:
    asked: list[dict[str, object]] = [
        {"memory_pool_limits": {"NO_SUCH": 1}},
        {"tactic_sources": ["NO_SUCH"]},
        {"preview_features": ["NO_SUCH"]},
        {"profiling_verbosity": "NO_SUCH"},
        {"hardware_compatibility_level": "NO_SUCH"},
        {"engine_capability": "NO_SUCH"},
        {"default_device_type": "NO_SUCH"},
        {"flags": ["NO_SUCH"]},
        {"clear_flags": ["NO_SUCH"]},
        {"network_flags": ["NO_SUCH"]},
        {"parser_flags": ["NO_SUCH"]},
    ]
    if version != "10.0":
        asked += [{"runtime_platform": "NO_SUCH"}, {"tiling_optimization_level": "NO_SUCH"}]
    probed = site_of(version).probe(*asked)
    assert {option for one in asked for option in one} == set(probed.capabilities.choices)
    for [option], fault in zip(asked, probed.faults, strict=True):
        assert fault is not None, option
        assert fault.code is ErrorCode.UNKNOWN_OPTION
        assert fault.details["option"] == option
        assert fault.details["valid"] == probed.capabilities.choices[option]


def test_names_keep_their_meaning_where_the_integers_were_renumbered(site_of: SiteOf) -> None:
    asked: dict[str, object] = {
        "flags": ["STRIP_PLAN"],
        "tactic_sources": ["JIT_CONVOLUTIONS"],
        "network_flags": ["STRONGLY_TYPED"],
    }
    old, new = (site_of(version).probe(asked) for version in ("10.16", "11.4"))
    assert old.faults == new.faults == [None]
    for enum, name in (
        ("BuilderFlag", "STRIP_PLAN"),
        ("TacticSource", "JIT_CONVOLUTIONS"),
        ("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),
    ):
        assert old.integers[enum][name] != new.integers[enum][name]
    for probed in (old, new):
        number = probed.integers["NetworkDefinitionCreationFlag"]["STRONGLY_TYPED"]
        assert probed.masks == [1 << number]


@EVERY
def test_bindings_without_their_libraries_are_unavailable_and_the_missing_file_is_named(
    site_of: SiteOf, version: str
) -> None:
    site = site_of(version)
    fault = type(site)(site.modules).probe().fault
    assert fault is not None
    assert fault.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "is installed but does not load" in fault.message
    assert ".so." in fault.message
    assert "LD_LIBRARY_PATH" in fault.hint


@EVERY
def test_options_are_not_offered_by_version_but_by_what_is_there(
    site_of: SiteOf, version: str, tmp_path: Path
) -> None:
    """The same bindings under a version number from the future have the same options."""
    site = site_of(version)
    package = tmp_path / "tensorrt"
    package.mkdir()
    (package / "__init__.py").write_text("from tensorrt_bindings import *\n__version__ = '99.0'\n")
    renamed = type(site)([tmp_path, *site.modules], site.libraries)
    assert renamed.probe().capabilities == site.probe().capabilities
