"""Text that comes from a model or a library, made safe to show: the one rule for all of it."""

import re

MAX_NAME = 200
"""The longest phase, tensor or operator name that is shown, in characters."""

MAX_LINE = 2000
"""The longest log line that is shown, in characters."""

# A whole escape sequence goes, not only its first byte: its tail would read as text.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]?",  # the rest
    re.DOTALL,
)
# C0 and C1 controls, DEL, line and paragraph separators, bidirectional overrides, zero-width marks,
# the byte order mark, tag characters (invisible to people, read by models), lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Return `text` on one line: no control or invisible characters, at most `limit` characters."""
    # Cut first: cleaning costs time in proportion, and the text may be of any length.
    cut = text[: 4 * limit]
    clean = _UNSEEN.sub(" ", _ESCAPES.sub("", cut)).strip()
    if len(clean) > limit or len(text) > len(cut):
        return clean[: limit - 1] + "…"
    return clean
