"""Finds and reads policy files (TOML).

A name is looked for in the user's folder first, then among the shipped policies, so that an operator
can put a `default` of their own in place of the shipped one.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from trt_agent_tools.model.errors import Details, ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.file_errors import Problem, problems, syntax_problem
from trt_agent_tools.policy.policy import Policy, PolicyFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUFFIX = ".toml"
MAX_FILE_BYTES = 1024 * 1024
"""A larger file is no policy."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HERE = Path(__file__).parent
_MAX_MESSAGE = 800


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """A policy that can be named, and where it comes from."""

    name: str
    path: Path
    shipped: bool


def shipped_folder() -> Path:
    """Return the folder of the shipped policies: inside the wheel, or the checkout's own."""
    in_wheel = _HERE / "shipped"
    return in_wheel if in_wheel.is_dir() else _HERE.parents[1] / "policies"


def user_policies_folder() -> Path:
    """Return the folder of the user's own policies; it need not exist."""
    return platformdirs.user_config_path("trt-agent-tools", appauthor=False) / "policies"


def known_policies() -> list[KnownPolicy]:
    """Return every policy that can be named, sorted; a user's own hides the shipped one of its name."""
    found: dict[str, KnownPolicy] = {}
    for folder, shipped in ((shipped_folder(), True), (user_policies_folder(), False)):
        for path in folder.glob(f"*{SUFFIX}"):
            if _NAME.fullmatch(path.stem) and path.is_file():
                found[path.stem] = KnownPolicy(path.stem, path, shipped)
    return sorted(found.values(), key=lambda policy: policy.name)


def load_policy(name: str) -> Policy:
    """Return the policy in this file, if `name` ends in .toml, or else the one of this name.

    For the operator, who may read any file: see `load_named_policy` for what a caller gives.

    Raises:
        Refusal: there is none, or its file is not valid; the message names file, line and key.
    """
    return _read(Path(name)) if name.endswith(SUFFIX) else load_named_policy(name)


def load_named_policy(name: str) -> Policy:
    """Return the policy of this name: the user's own, or else the shipped one.

    Raises:
        Refusal: `name` is a path or no name, there is none, or its file is not valid.
    """
    known = {policy.name: policy for policy in known_policies()}
    if name in known:
        return _read(known[name].path)
    valid = list(known)
    what = (
        f"there is no policy {name!r}"
        if _NAME.fullmatch(name)
        else f"{one_line(name, 80)!r} is no name of a policy"
    )
    raise Refusal(
        ErrorCode.UNKNOWN_POLICY,
        what,
        f"Give one of {', '.join(valid)}. Files are named by the operator, with --policy FILE.toml, "
        f"or put into {user_policies_folder()}.",
        {"valid": valid},
    )


def _read(path: Path) -> Policy:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _invalid(path, Problem(f"cannot be read: {reason}")) from error
    if len(data) > MAX_FILE_BYTES:
        raise _invalid(path, Problem(f"has more than {MAX_FILE_BYTES} bytes"))
    try:
        # Whatever an editor wrote: with a byte order mark, with carriage returns.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _invalid(path, Problem("is not UTF-8", line)) from error
    except ValueError as error:
        # No TOML, or a number with more digits than Python reads.
        raise _invalid(path, syntax_problem(str(error))) from error
    except RecursionError as error:
        raise _invalid(path, Problem("is nested too deeply")) from error
    try:
        said = PolicyFile.model_validate(content)
    except ValidationError as error:
        raise _invalid(path, *problems(text, error)) from error
    return Policy(
        name=path.stem,
        description=said.description,
        reuse=said.reuse,
        rules=said.rules,
        escalation=said.escalation,
        session=said.session,
    )


def _invalid(path: Path, first: Problem, *more: Problem) -> Refusal:
    message = one_line(f"{path}: {first}", _MAX_MESSAGE)
    if more:
        message += f" (and {len(more)} more)"
    details: Details = {"file": str(path), "problems": [str(each) for each in (first, *more)]}
    if first.line is not None:
        details["line"] = first.line
    return Refusal(
        ErrorCode.UNKNOWN_POLICY,
        message,
        "`trt-agent-tools policy check FILE` tells whether a file is valid.",
        details,
    )
