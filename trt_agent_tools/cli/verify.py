"""`verify`: prints how an engine and what it was made from are, against the engine's manifest."""

from pathlib import Path

from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.verify import Finding, verify

_TOLD = {
    Finding.OK: "ok",
    Finding.MISMATCH: "MISMATCH",
    Finding.GONE: "not there, not checked",
}


def verify_engine(engine: Path) -> ExitCode:
    """Print a line for each file; `FAILED` if one is another than the manifest tells of.

    Raises:
        Refusal: the engine or its manifest is not there, or cannot be read.
    """
    files = verify(engine.absolute())
    for file in files:
        print(f"{file.role:<8}  {one_line(file.path)}: {_TOLD[file.finding]}")
    wrong = any(file.finding is Finding.MISMATCH for file in files)
    return ExitCode.FAILED if wrong else ExitCode.OK
