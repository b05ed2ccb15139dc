"""Holds an engine file, and what it was made from, against the manifest beside it."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic import ValidationError

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.supervisor.artefact import is_unchanged


class Finding(str, Enum):
    """How a file is."""

    OK = "ok"
    """Its size and digest are those of the manifest."""
    MISMATCH = "mismatch"
    """It is another file than the manifest tells of."""
    GONE = "gone"
    """It is not there any more."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One file and what was found. `role` is engine, model or sidecar."""

    role: str
    path: str
    finding: Finding


def manifest_of(engine: Path) -> Path:
    """Return where the manifest of an engine file is."""
    return engine.with_name(f"{engine.name}.json")


def verify(engine: Path) -> list[Checked]:
    """Re-hash the engine, and the model and its sidecars; only read.

    The engine is looked for at `engine`, wherever it was built; the others where they were then, so
    that a `GONE` among them says nothing about the engine.

    Raises:
        Refusal: there is no engine, no manifest beside it that can be read, or a file is unreadable.
    """
    beside = manifest_of(engine)
    try:
        if not engine.is_file():
            raise Refusal(
                ErrorCode.NOT_A_FILE, f"there is no engine {engine}", "Name an engine file."
            )
        manifest = Manifest.model_validate_json(beside.read_bytes())
        inputs = [("model", manifest.model), *(("sidecar", file) for file in manifest.sidecars)]
        return [
            Checked("engine", str(engine), _found(engine, manifest.engine)),
            *(Checked(role, file.path, _found(Path(file.path), file)) for role, file in inputs),
        ]
    except ValidationError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{beside} is no manifest of an engine",
            "Put back the manifest that its build wrote beside it, or build the engine again.",
        ) from error
    except OSError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"it cannot be verified: {error}",
            "Name an engine that can be read and has the manifest of its build beside it.",
        ) from error


def _found(path: Path, known: FileDigest) -> Finding:
    if not path.is_file():
        return Finding.GONE
    return Finding.OK if is_unchanged(path, known) else Finding.MISMATCH
