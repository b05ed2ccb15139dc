"""The trace that a request is part of, as W3C Trace Context writes it: `traceparent`, version 00."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_PATTERN = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"


def _names_a_span(traceparent: str) -> str:
    _, trace, span, _ = traceparent.split("-")
    if not (trace.strip("0") and span.strip("0")):
        raise ValueError("a trace or span of zeros is none")
    return traceparent


TraceParent = Annotated[
    str,
    Field(
        pattern=_PATTERN,
        description="The caller's span, as W3C Trace Context writes it: the build's becomes its child.",
    ),
    AfterValidator(_names_a_span),
]
"""The caller's span."""


def traceparent_or_none(text: object) -> str | None:
    """Return `text` if it is a `TraceParent`: one that is not says nothing, and harms no request."""
    if not isinstance(text, str) or not re.fullmatch(_PATTERN, text.strip()):
        return None
    try:
        return _names_a_span(text.strip())
    except ValueError:
        return None
