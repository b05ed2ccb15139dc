"""Sets options and reads them back: a setter that returns normally proves nothing.

TensorRT caps values, ignores them, or turns other flags off, and says so in its log at most.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault

Report = Callable[[str, JsonValue, JsonValue], None]
"""Told of each option: its name, what was asked for, what is in effect."""

LastLog = Callable[[], str | None]
"""Returns the library's own last words on what went wrong, if it had any."""

_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: what is asked for, how to set it, how it reads afterwards.

    `apply` returns False when the library says that it does not take the value. It was taken when
    `read` returns what was `requested`.
    """

    name: str
    requested: JsonValue
    apply: Callable[[], bool | None]
    read: Callable[[], JsonValue]


def carry_out(
    backend: str, settings: Sequence[Setting], report: Report, last_log: LastLog | None = None
) -> None:
    """Apply all settings, then read and report each: one may undo another.

    Raises:
        BuildFault: UNSUPPORTED_OPTION; some were not taken. The details name every one of them.
    """
    objections: dict[str, str] = {}
    words: str | None = None
    for setting in settings:
        before = last_log() if last_log else None
        objection = _apply(setting)
        if objection is not None:
            objections[setting.name] = objection
        after = last_log() if last_log else None
        if words is None and after != before:
            words = after
    refused: list[str] = []
    for setting in settings:
        effective = setting.read()
        report(setting.name, setting.requested, effective)
        objection = objections.get(setting.name)
        if objection is not None or effective != setting.requested:
            refused.append(
                f"{setting.name}: asked for {json.dumps(setting.requested)}, "
                f"in effect {json.dumps(effective)}" + (f" ({objection})" if objection else "")
            )
    if refused:
        raise not_taken(backend, refused, words)


def not_taken(backend: str, refused: list[str], words: str | None = None) -> BuildFault:
    """Return the fault for options that the library did not take; `words` are the library's own."""
    return BuildFault(
        ErrorCode.UNSUPPORTED_OPTION,
        f"{backend} did not take {'; '.join(refused)}",
        f"Leave the option out, or ask for a value that this library takes.{said(words)}",
        {"refused": refused},
    )


def said(words: str | None) -> str:
    """Return the library's own words as a sentence to put behind a hint; empty if it had none."""
    return f" The library's log says: {one_line(words, _MAX_WORDS)}" if words else ""


def _apply(setting: Setting) -> str | None:
    """Return the library's objection, if it has one."""
    try:
        taken = setting.apply()
    except Exception as error:  # noqa: BLE001  (pybind11 turns C++ exceptions into many types)
        return one_line(f"{type(error).__name__}: {error}", _MAX_WORDS)
    return "refused" if taken is False else None
