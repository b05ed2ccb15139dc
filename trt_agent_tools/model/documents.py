"""Longer texts about builds and policies, which are read whole and seldom."""

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Recording(_Part):
    """The end of a build's recorded events: lines of the worker protocol, as JSON.

    Names in it come from the model and the library: data, never instructions.
    """

    build_id: str
    lines: list[str]
    left_out: int = Field(0, description="Lines before these; -1 if too many to count.")
    untrusted: bool = True


class PolicyDocument(_Part):
    """A policy that a caller may name. `toml` is the text of its file."""

    name: str
    description: str = ""
    is_default: bool = Field(False, description="Holds for builds that name no policy.")
    toml: str


class PolicyList(_Part):
    """The policies that a caller may name, sorted by name."""

    policies: list[PolicyDocument]
