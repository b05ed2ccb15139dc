"""Durations as people write them: seconds as a number, or text such as "90s", "15m", "1h30m"."""

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from trt_agent_tools.model.untrusted import one_line

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")

MAX_TEXT = 40
"""No duration is written longer than this, in characters."""

MAX_S = 366 * 86400.0
"""No duration is longer than this; a larger one is a mistake in its unit."""


def parse_duration(value: object) -> float:
    """Return the seconds that `value` means.

    Raises:
        ValueError: `value` is no duration, is negative or not finite, exceeds `MAX_S`, or is text longer
            than `MAX_TEXT`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('a duration is a number of seconds or text such as "90s", "15m", "1h30m"')
    if isinstance(value, str):
        text = value.strip().lower()
        if len(value) > MAX_TEXT or not _WHOLE.fullmatch(text):
            raise ValueError(
                f'{one_line(value, MAX_TEXT)!r} is no duration; write it as "90s", "15m", "1h30m" (units ms, s, m, h, d)'
            )
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
    else:
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError("a duration is finite and not negative")
    if seconds > MAX_S:
        raise ValueError(f"a duration is at most {MAX_S:.0f} s (366 days)")
    return seconds


def format_duration(seconds: float) -> str:
    """Return `seconds` in a short form for a reader, such as "0.4s", "12.3s", "4m05s", "1h30m"."""
    if round(seconds, 1) < 60:  # noqa: PLR2004  (a minute)
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004  (an hour)
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=float | str),
    Field(description='Seconds, or text such as "90s", "15m", "1h30m".'),
]
"""Seconds in a model, written as `parse_duration` takes it."""
