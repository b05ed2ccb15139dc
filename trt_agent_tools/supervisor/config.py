"""What the operator decides, once, for a supervisor."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Where a supervisor works and what it allows.

    `roots` are the only folders that models are read from and engines written to.
    `allowed_plugins` are plugin libraries that a build may load; by default none.
    """

    state_dir: Path
    roots: tuple[Path, ...]
    policy: str = "default"
    enable_replay: bool = False
    allowed_plugins: tuple[Path, ...] = ()
