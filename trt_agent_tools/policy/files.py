"""Finds and reads policy files (TOML)."""

import sys
from pathlib import Path

from pydantic import ValidationError

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.policy.policy import Policy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).parent


def shipped_folder() -> Path:
    """Return the folder of the shipped policies: inside the wheel, or the checkout's own."""
    in_wheel = _HERE / "shipped"
    return in_wheel if in_wheel.is_dir() else _HERE.parents[1] / "policies"


def shipped_names() -> list[str]:
    """Return the names of the shipped policies, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.toml"))


def load_policy(name: str) -> Policy:
    """Return the shipped policy of this name, or the one in this file if `name` ends in .toml.

    Raises:
        Refusal: there is none, or the file is not valid; the message names the key.
    """
    path = Path(name) if name.endswith(".toml") else shipped_folder() / f"{name}.toml"
    if not name.endswith(".toml") and name not in shipped_names():
        raise Refusal(
            ErrorCode.UNKNOWN_POLICY,
            f"there is no policy {name!r}",
            f"Give one of {', '.join(shipped_names())}, or a path that ends in .toml.",
            {"valid": shipped_names()},
        )
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        return Policy.model_validate({"name": path.stem, **content})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refusal(
            ErrorCode.UNKNOWN_POLICY, f"{path.name} cannot be read: {error}", "Check the file."
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Refusal(
            ErrorCode.UNKNOWN_POLICY,
            f"{path.name}: {key}: {first['msg']}",
            "Mend that key of the policy file.",
        ) from error
