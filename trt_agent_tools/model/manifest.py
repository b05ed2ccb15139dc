"""The manifest beside an engine file: what it was made from, with what, and how."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.events import JsonValue

FORMAT = 1
"""Rises when a field changes its meaning or goes."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class FileDigest(_Part):
    """A file by its content. `path` is absolute, as it was when the engine was built."""

    path: str
    bytes: int
    sha256: str


class OptionInEffect(_Part):
    """An option as it was asked for and as the library reported it afterwards."""

    name: str
    requested: JsonValue
    effective: JsonValue


class PhaseTiming(_Part):
    """How long one phase took, in seconds; `parent` is the instance that contains it."""

    instance: int
    parent: int | None = None
    name: str
    steps: int
    elapsed_s: float


class Manifest(_Part):
    """Written beside the engine as ``<engine>.json``.

    The digest names this file's bytes. Two builds of one request may differ in it: nothing here
    promises that an engine can be reproduced.
    """

    format: int = FORMAT
    build_id: str
    reused_from: str | None = None
    """The build that made the engine, if it was another one: versions, device, options, phases and log
    are of that one."""
    label: str | None = None
    policy: str = ""
    created_at: str
    backend: str
    library: str
    versions: dict[str, str]
    device: str
    model: FileDigest
    sidecars: list[FileDigest] = Field(default_factory=list)
    engine: FileDigest
    options: list[OptionInEffect] = Field(default_factory=list)
    phases: list[PhaseTiming] = Field(default_factory=list)
    log: FileDigest | None = None
