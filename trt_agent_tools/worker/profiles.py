"""Optimization profiles: judged against the network's inputs, then added and read back."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.options import BuildOptions, ShapeRange
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import Library
from trt_agent_tools.worker.library_types import (
    Builder,
    IBuilderConfig,
    INetworkDefinition,
    IOptimizationProfile,
)
from trt_agent_tools.worker.settings import LastLog, Report, said

Profile = dict[str, ShapeRange]

_NAMED = 10
"""How many inputs a message names; the details name all."""

_EXAMPLE = (1, 4, 8)
"""Minimum, optimum and maximum of a dynamic dimension in the example of a hint."""


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    shape: tuple[int, ...]
    shape_tensor: bool

    @property
    def needs_profile(self) -> bool:
        return self.shape_tensor or -1 in self.shape

    @property
    def values(self) -> int:
        """How many values a shape tensor has."""
        return self.shape[0] if self.shape else 1

    def __str__(self) -> str:
        kind = " shape tensor" if self.shape_tensor else ""
        return f"{one_line(self.name, MAX_NAME)}: {self.shape}{kind}"

    def example(self) -> dict[str, list[int]]:
        """Return bounds that fit, for a reader to put numbers into."""
        bounds = zip(("min", "opt", "max"), _EXAMPLE, strict=True)
        if self.shape_tensor:
            return {key: [number] * max(1, self.values) for key, number in bounds}
        return {key: [number if dim < 0 else dim for dim in self.shape] for key, number in bounds}

    def objection(self, bounds: ShapeRange) -> str | None:
        """Return why these bounds do not fit the input."""
        if self.shape_tensor:
            if len(bounds.min) != self.values:
                return f"is a shape tensor of {self.values} values, the profile gives {len(bounds.min)}"
            return None
        if len(bounds.min) != len(self.shape):
            return f"has shape {self.shape}, the profile gives {len(bounds.min)} dimensions"
        for axis, dim in enumerate(self.shape):
            given = (bounds.min[axis], bounds.opt[axis], bounds.max[axis])
            if dim >= 0 and given != (dim, dim, dim):
                return f"has shape {self.shape}: dimension {axis} is always {dim}, not {given}"
        return None


def add_profiles(
    library: Library,
    builder: Builder,
    network: INetworkDefinition,
    config: IBuilderConfig,
    options: BuildOptions,
    report: Report,
    last_log: LastLog | None = None,
) -> None:
    """Add every profile of `options` to `config`, read it back and report it.

    An input with a dynamic dimension, and one whose values are shapes, must be in every profile.

    Raises:
        BuildFault: MISSING_PROFILE, naming every input that lacks one, with an example;
            INVALID_PROFILE, an input is not the model's, its bounds do not fit, or the library did
            not take the profile.
    """
    inputs = _inputs(network)
    _check_fit(inputs, options.profiles)
    _check_cover(inputs, options.profiles)
    if not options.profiles:
        return
    requested: list[str] = []
    effective: list[str] = []
    for profile in options.profiles:
        made = builder.create_optimization_profile()
        _fill(library, made, inputs, profile)
        if config.add_optimization_profile(made) < 0:
            words = last_log() if last_log else None
            raise _not_taken(library, _as_text(profile), words)
        requested.append(_as_text(profile))
        effective.append(_read(made, inputs, profile))
    report("profiles", requested, effective)
    for asked, found in zip(requested, effective, strict=True):
        if asked != found:
            raise _not_taken(library, asked, f"in effect {found}")


def _inputs(network: INetworkDefinition) -> dict[str, _Input]:
    found = [network.get_input(index) for index in range(network.num_inputs)]
    return {
        tensor.name: _Input(tensor.name, tuple(tensor.shape), tensor.is_shape_tensor)
        for tensor in found
    }


def _check_fit(inputs: dict[str, _Input], profiles: list[Profile]) -> None:
    problems: list[str] = []
    advice: list[str] = []
    for number, profile in enumerate(profiles, 1):
        for name, bounds in profile.items():
            shown = one_line(name, MAX_NAME)
            if name not in inputs:
                problems.append(f"profile {number}: the model has no input {shown}")
                near = difflib.get_close_matches(name, inputs, n=1)
                advice += [f"Did you mean {one_line(near[0], MAX_NAME)}?"] if near else []
            elif objection := inputs[name].objection(bounds):
                problems.append(f"profile {number}: {shown} {objection}")
    if problems:
        known = [str(tensor) for tensor in inputs.values()]
        raise BuildFault(
            ErrorCode.INVALID_PROFILE,
            _some(problems, "; "),
            " ".join([*dict.fromkeys(advice), f"The model's inputs are {_some(known, ', ')}."]),
            {"problems": problems, "inputs": known},
        )


def _check_cover(inputs: dict[str, _Input], profiles: list[Profile]) -> None:
    # Without any profile there is one to be made: the empty one stands for it.
    covered = profiles or [Profile()]
    missing = [
        tensor
        for tensor in inputs.values()
        if tensor.needs_profile and any(tensor.name not in profile for profile in covered)
    ]
    if not missing:
        return
    example = {tensor.name: tensor.example() for tensor in inputs.values() if tensor.needs_profile}
    shown = dict(list(example.items())[:_NAMED])
    rest = " (and so on for the rest)" if len(shown) < len(example) else ""
    where = "no profile has" if not profiles else "not every profile has"
    named = [str(tensor) for tensor in missing]
    raise BuildFault(
        ErrorCode.MISSING_PROFILE,
        f"these inputs have dynamic shapes, and {where} them: {_some(named, ', ')}",
        "Give the shapes that you will run with; inspect_model proposes some. The form: "
        f'"profiles": {json.dumps(shown)}{rest}',
        {"inputs": named},
    )


def _fill(
    library: Library, made: IOptimizationProfile, inputs: dict[str, _Input], profile: Profile
) -> None:
    for name, bounds in profile.items():
        put = made.set_shape_input if inputs[name].shape_tensor else made.set_shape
        try:
            put(name, bounds.min, bounds.opt, bounds.max)
        except Exception as error:  # pybind11 turns C++ exceptions into many types
            raise _not_taken(library, _as_text({name: bounds}), str(error)) from error


def _read(made: IOptimizationProfile, inputs: dict[str, _Input], profile: Profile) -> str:
    found: dict[str, dict[str, list[int]]] = {}
    for name in profile:
        get = made.get_shape_input if inputs[name].shape_tensor else made.get_shape
        bounds: list[Iterable[int]] = list(get(name))
        found[name] = {
            key: list(shape) for key, shape in zip(("min", "opt", "max"), bounds, strict=False)
        }
    return json.dumps(found)


def _as_text(profile: Profile) -> str:
    return json.dumps({name: bounds.model_dump() for name, bounds in profile.items()})


def _not_taken(library: Library, profile: str, words: str | None) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_PROFILE,
        f"{library.backend} did not take the profile {one_line(profile, 500)}",
        f"Every dimension must satisfy min <= opt <= max and lie within what the model allows."
        f"{said(words)}",
    )


def _some(texts: list[str], separator: str) -> str:
    left_out = len(texts) - _NAMED
    shown = separator.join(texts[:_NAMED])
    return f"{shown}{separator}and {left_out} more" if left_out > 0 else shown
