"""What the operator decides, once, for a supervisor."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineCacheConfig:
    """Where engines are kept for reuse, and how many bytes of them at most; 0 keeps none."""

    folder: Path
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Where a supervisor works and what it allows.

    `roots` are the only folders that models are read from and engines written to.
    `allowed_plugins` are plugin libraries that a build may load; by default none. Without `engine_cache`
    no engine is reused or kept.
    """

    state_dir: Path
    roots: tuple[Path, ...]
    policy: str = "default"
    enable_replay: bool = False
    allowed_plugins: tuple[Path, ...] = ()
    engine_cache: EngineCacheConfig | None = None
