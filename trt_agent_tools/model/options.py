"""Build options, by the names that the library itself gives them on `IBuilderConfig`.

Only shapes and signs are judged here. Whether the loaded library has an option, and whether it took
the value, is found out on the library by reading the option back.
"""

import re
from math import prod
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from trt_agent_tools.model.untrusted import one_line

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|KiB|MB|MiB|GB|GiB)?", re.IGNORECASE | re.ASCII)
_UNIT_BYTES = {
    "b": 1,
    "kb": 1000,
    "kib": 1024,
    "mb": 1000**2,
    "mib": 1024**2,
    "gb": 1000**3,
    "gib": 1024**3,
}
_MAX_BYTES = 1 << 50
_MAX_SIZE_TEXT = 40
_MAX_DIMENSION = 2**31 - 1


def parse_size(value: object) -> int:
    """Return the bytes that `value` means: an integer, or text such as "512MiB" or "4GB".

    Raises:
        ValueError: `value` is no size, is negative, or exceeds 1 PiB.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('a size is a number of bytes or text such as "512MiB"')
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip()) if len(value) <= _MAX_SIZE_TEXT else None
        if not match:
            shown = one_line(value, _MAX_SIZE_TEXT)
            raise ValueError(f'{shown!r} is no size; write it as "512MiB", "4GB" or bytes')
        size = float(match[1]) * _UNIT_BYTES[(match[2] or "b").lower()]
    else:
        size = value
    if not 0 <= size <= _MAX_BYTES:
        raise ValueError("a size is between 0 and 1 PiB")
    return round(size)


Bytes = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
"""A size in bytes, written as `parse_size` takes it."""

Name = Annotated[str, Field(min_length=1, max_length=128)]
"""The name of a flag, pool, tensor and the like."""

Dimensions = Annotated[list[Annotated[int, Field(ge=0, le=_MAX_DIMENSION)]], Field(max_length=8)]
"""A shape; TensorRT has at most eight dimensions."""


class ShapeRange(BaseModel):
    """The shapes that one input may take: smallest, the one to optimise for, largest."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    min: Dimensions
    opt: Dimensions
    max: Dimensions

    @model_validator(mode="after")
    def _ordered(self) -> "ShapeRange":
        if not len(self.min) == len(self.opt) == len(self.max):
            raise ValueError("min, opt and max have the same number of dimensions")
        for axis, (low, best, high) in enumerate(zip(self.min, self.opt, self.max, strict=True)):
            if not low <= best <= high:
                raise ValueError(
                    f"dimension {axis} must satisfy min <= opt <= max, got {low}, {best}, {high}"
                )
        return self


Reuse = Literal["verify", "off"]
"""Whether an identical request may be answered with an engine that was built before: verified, or not at
all."""

Profile = Annotated[dict[Name, ShapeRange], Field(min_length=1, max_length=256)]
"""One optimization profile: input name to the shapes that it may take."""


class BuildOptions(BaseModel):
    """What the builder is told beside the model. Everything absent keeps the library's default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    builder_optimization_level: int | None = Field(None, ge=0, description="0 fastest to 5 best.")
    max_aux_streams: int | None = Field(None, ge=0, description="Beside the main stream.")
    avg_timing_iterations: int | None = Field(None, ge=1, description="Runs per timed tactic.")
    max_num_tactics: int | None = Field(
        None, ge=-1, description="Per layer; -1: the library's choice."
    )
    tiling_optimization_level: Name | None = Field(None, description="NONE, FAST, MODERATE, FULL.")
    l2_limit_for_tiling: Bytes | None = Field(None, description='Size, such as "2MiB".')
    profiling_verbosity: Name | None = Field(
        None, description="LAYER_NAMES_ONLY, DETAILED or NONE."
    )
    hardware_compatibility_level: Name | None = Field(None, description="Such as AMPERE_PLUS.")
    runtime_platform: Name | None = Field(None, description="Such as SAME_AS_BUILD.")
    engine_capability: Name | None = Field(None, description="Such as STANDARD.")
    default_device_type: Name | None = Field(None, description="GPU or DLA.")
    DLA_core: int | None = Field(None, ge=0, description="Which DLA.")
    memory_pool_limits: dict[Name, Bytes] = Field(
        default_factory=dict, max_length=64, description='Such as {"WORKSPACE": "4GiB"}.'
    )
    tactic_sources: list[Name] | None = Field(
        None, max_length=64, description="TacticSource names."
    )
    preview_features: list[Name] = Field(
        default_factory=list, max_length=64, description="PreviewFeature names."
    )
    compute_capabilities: list[Name] = Field(
        default_factory=list, max_length=64, description='Such as ["SM89"]; TensorRT-RTX only.'
    )
    flags: list[Name] = Field(
        default_factory=list, max_length=64, description='BuilderFlag names, such as ["TF32"].'
    )
    clear_flags: list[Name] = Field(
        default_factory=list, max_length=64, description="BuilderFlag names to turn off."
    )
    network_flags: list[Name] = Field(
        default_factory=list, max_length=16, description="NetworkDefinitionCreationFlag names."
    )
    parser_flags: list[Name] = Field(
        default_factory=list, max_length=16, description="OnnxParserFlag names."
    )
    profiles: Annotated[
        list[Profile], WithJsonSchema({"type": ["object", "array"]}, mode="validation")
    ] = Field(
        default_factory=list,
        max_length=64,
        description='One {"input": {"min": [1,8], "opt": [4,8], "max": [8,8]}}, or a list of them.',
    )
    timing_cache: str | None = Field(
        None, min_length=1, max_length=4096, description="File or folder; classic TensorRT only."
    )
    plugins: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=64,
        description="Files that the operator allows.",
    )
    overwrite: bool = Field(False, description="Replace an engine that is already there.")
    reuse: Reuse = Field("verify", description="off: always build.")

    @property
    def profile_elements(self) -> int:
        """The elements of all inputs at the shapes to optimise for, all profiles together."""
        return sum(prod(bounds.opt) for profile in self.profiles for bounds in profile.values())

    @model_validator(mode="before")
    @classmethod
    def _one_profile_alone(cls, data: object) -> object:
        """Take `profiles` as one profile too: the usual case needs no list around it."""
        if isinstance(data, dict) and isinstance(data.get("profiles"), dict):
            return {**data, "profiles": [data["profiles"]]}
        return data
