"""Refusals that several calls of a supervisor share, each worded once."""

import math

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import MAX_WAIT_S
from trt_agent_tools.model.states import State


def ending() -> Refusal:
    """Return the refusal of what comes while a supervisor ends."""
    return Refusal(ErrorCode.SHUTTING_DOWN, "this server is ending", "Call again in a moment.")


def too_late(build_id: str, state: State) -> Refusal:
    """Return the refusal of a change to a build that has ended, or is being ended."""
    return Refusal(
        ErrorCode.TOO_LATE,
        f"build {build_id} is {state.value}: its limits no longer matter",
        "Start it again, under a longer limit if the policy has one.",
    )


def check_wait(wait_s: float) -> None:
    """Judge how long a caller wants to wait.

    Raises:
        Refusal: it is no number of seconds within [0, `MAX_WAIT_S`].
    """
    if not math.isfinite(wait_s) or not 0 <= wait_s <= MAX_WAIT_S:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"wait_s is between 0 and {MAX_WAIT_S:.0f} seconds, not {wait_s}",
            "Give one in that range, and wait again when it is over: the build goes on.",
        )


def check_count(name: str, value: int, largest: int) -> None:
    """Judge how many of something a caller wants.

    Raises:
        Refusal: it is not within [1, `largest`].
    """
    if not 1 <= value <= largest:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} is between 1 and {largest}, not {value}",
            f"Give a {name} in that range.",
        )
