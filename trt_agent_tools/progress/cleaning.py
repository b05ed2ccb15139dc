"""Structures of untrusted text, cleaned and bounded as they come in."""

import math
from collections.abc import Mapping

from trt_agent_tools.model.errors import Details, ErrorInfo, JsonScalar
from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.model.untrusted import MAX_LINE, MAX_NAME, one_line

MAX_PATH = 4096
"""The longest path that is shown, in characters."""

MAX_ITEMS = 200
"""The most items of a list or a map that are shown; one more tells how many were left out."""


def clean_error(error: ErrorInfo) -> ErrorInfo:
    """Return `error` with every text in it on one line, and its details bounded."""
    details: Details = {}
    for key, value in list(error.details.items())[:MAX_ITEMS]:
        details[one_line(key, MAX_NAME)] = (
            _clean_list(value) if isinstance(value, list) else _clean_scalar(value)
        )
    return ErrorInfo(error.code, one_line(error.message), one_line(error.hint), details)


def clean_map(values: Mapping[str, str]) -> dict[str, str]:
    """Return `values` with names and values on one line."""
    shown = list(values.items())[:MAX_ITEMS]
    return {one_line(name, MAX_NAME): one_line(value, MAX_NAME) for name, value in shown}


def clean_label(label: str | None) -> str | None:
    """Return a label for people on one line: it comes from an agent."""
    return one_line(label, MAX_NAME) if label else None


def value_text(value: JsonValue) -> str:
    """Return an option's value as compact text: "3", "true", "TF32, REFIT", "WORKSPACE=1024"."""
    if isinstance(value, list):
        text = ", ".join(value[:MAX_ITEMS])
    elif isinstance(value, dict):
        text = ", ".join(f"{name}={number}" for name, number in list(value.items())[:MAX_ITEMS])
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = "none" if value is None else str(value)
    return one_line(text, MAX_LINE)


def _clean_list(values: list[str]) -> list[str]:
    shown = [one_line(value) for value in values[:MAX_ITEMS]]
    if len(values) > MAX_ITEMS:
        shown.append(f"… and {len(values) - MAX_ITEMS} more")
    return shown


def _clean_scalar(value: JsonScalar) -> JsonScalar:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    return value
