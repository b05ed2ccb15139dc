"""Builds are compared by what bears on their time, and by files that are still the same ones."""

import os
from pathlib import Path

import pytest

from tests.unit.build_orders import build_order
from trt_agent_tools.model.events import InputFile
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import StateChanged
from trt_agent_tools.progress.past import Setting, Wanted
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView, Inputs, Told
from trt_agent_tools.supervisor.estimates.model_files import (
    are_unchanged,
    is_filled,
    sidecars_of,
    stamp_of,
)
from trt_agent_tools.supervisor.estimates.outlook import Outlook, learned, options_digest


def digest(**options: object) -> str:
    return options_digest(BuildOptions.model_validate(options))


SAME = {
    "what is left out has its default": ({}, {"flags": [], "memory_pool_limits": {}}),
    "replacing an engine": ({}, {"overwrite": True}),
    "taking a kept engine": ({}, {"reuse": "off"}),
    "the order of flags": ({"flags": ["FP16", "TF32"]}, {"flags": ["TF32", "FP16"]}),
    "a flag twice": ({"flags": ["TF32"]}, {"flags": ["TF32", "TF32"]}),
    "the folder of a plugin": ({"plugins": ["/a/p.so"]}, {"plugins": ["/b/p.so"]}),
    "where a timing cache lies": ({"timing_cache": "/a/t"}, {"timing_cache": "/b/u"}),
    "how a size is written": (
        {"memory_pool_limits": {"WORKSPACE": "1KiB"}},
        {"memory_pool_limits": {"WORKSPACE": 1024}},
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_says_nothing_of_the_time_makes_no_other_build(
    one: dict[str, object], other: dict[str, object]
) -> None:
    assert digest(**one) == digest(**other)


SHAPE = {"min": [1], "opt": [2], "max": [4]}
DIFFERENT: tuple[dict[str, object], ...] = (
    {},
    {"builder_optimization_level": 5},
    {"flags": ["TF32"]},
    {"clear_flags": ["TF32"]},
    {"memory_pool_limits": {"WORKSPACE": 1024}},
    {"plugins": ["/a/p.so"]},
    {"timing_cache": "/a/t"},
    {"profiles": {"x": SHAPE}},
    {"profiles": {"x": {**SHAPE, "opt": [3]}}},
    {"tactic_sources": []},
)


def test_every_other_option_makes_another_build() -> None:
    digests = {digest(**options) for options in DIFFERENT}
    assert len(digests) == len(DIFFERENT)


def test_a_filled_timing_cache_makes_another_build_than_an_empty_one() -> None:
    options = BuildOptions(timing_cache="/a/t")
    assert options_digest(options, cache_is_filled=True) != options_digest(options)


def test_a_timing_cache_is_filled_by_a_file_or_in_a_folder(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.touch()
    full.write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    assert is_filled(str(full))
    assert is_filled(str(tmp_path))
    for nothing in (None, str(empty), str(tmp_path / "folder"), str(tmp_path / "gone")):
        assert not is_filled(nothing)


def test_elements_of_profiles_are_counted_at_the_shapes_to_optimise_for() -> None:
    one = {"x": {"min": [1, 8], "opt": [4, 8], "max": [8, 8]}, "y": SHAPE}
    assert BuildOptions.model_validate({"profiles": one}).profile_elements == 34
    assert BuildOptions.model_validate({"profiles": [one, one]}).profile_elements == 68
    assert BuildOptions().profile_elements == 0


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"model")
    (tmp_path / "w.bin").write_bytes(b"weights")
    return path


def inputs(*files: Path, left_out: int = 0) -> Inputs:
    told = tuple(InputFile(str(file), file.stat().st_size, "") for file in files)
    return Inputs("ab" * 32, told, left_out)


def test_a_stamp_tells_of_every_change_to_a_file(model: Path) -> None:
    before = stamp_of(model, identity(model))
    assert before is not None
    os.utime(model, ns=(0, 1))
    assert stamp_of(model, identity(model)) not in {before, None}
    model.with_name("other").write_bytes(b"model")
    assert stamp_of(model.with_name("other"), identity(model)) is None
    assert stamp_of(model.with_name("gone"), (0, 0)) is None


def test_another_name_of_a_file_is_no_change(model: Path) -> None:
    before = stamp_of(model, identity(model))
    model.with_name("link").hardlink_to(model)
    assert stamp_of(model, identity(model)) == before


def test_a_model_is_known_again_with_all_of_its_files(model: Path, tmp_path: Path) -> None:
    order = build_order(tmp_path).model_copy(update={"model_identity": identity(model)})
    stamp = stamp_of(model, identity(model))
    assert stamp is not None
    sidecar = tmp_path / "w.bin"
    read = inputs(model, sidecar)
    stamps = sidecars_of(order, stamp, read)
    assert stamps is not None
    assert are_unchanged(model, stamps)
    assert sidecars_of(order, "another", read) is None
    assert sidecars_of(order, stamp, inputs(model, sidecar, left_out=1)) is None
    sidecar.write_bytes(b"other weights")
    assert not are_unchanged(model, stamps)
    assert sidecars_of(order, stamp, read) is None
    sidecar.unlink()
    assert not are_unchanged(model, stamps)


def test_a_file_that_is_not_beside_its_model_is_not_known_again(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "w.bin"
    elsewhere.touch()
    order = build_order(model.parent).model_copy(update={"model_identity": identity(model)})
    stamp = stamp_of(model, identity(model))
    assert stamp is not None
    assert sidecars_of(order, stamp, inputs(model, elsewhere)) is None


OUTLOOK = Outlook(Wanted(Setting("replay", "", "cpu"), None, "o", None), None, "1-2-3-4")


def succeeded(*states: State) -> BuildView:
    view = BuildView(told=Told(inputs=Inputs("ab" * 32, ())))
    for at, state in enumerate(states):
        view = fold(view, StateChanged(float(at), state))
    return view


def test_a_success_is_learned_with_the_time_on_its_device() -> None:
    found = learned(OUTLOOK, succeeded(State.STARTING, State.BUILDING, State.SUCCEEDED), ())
    assert found is not None
    assert (found.past.total_s, found.past.model, found.stamp) == (2.0, "ab" * 32, "1-2-3-4")


def test_a_build_whose_files_cannot_be_known_again_is_learned_without_a_stamp() -> None:
    found = learned(OUTLOOK, succeeded(State.STARTING, State.SUCCEEDED), None)
    assert found is not None
    assert found.stamp is None


def test_a_build_that_was_asked_to_end_or_never_had_a_device_teaches_nothing() -> None:
    late = succeeded(State.STARTING, State.BUILDING, State.CANCELLING, State.SUCCEEDED)
    assert late.state is State.SUCCEEDED
    assert learned(OUTLOOK, late, ()) is None
    assert learned(OUTLOOK, succeeded(State.SUCCEEDED), ()) is None
    assert learned(OUTLOOK, BuildView(), ()) is None
