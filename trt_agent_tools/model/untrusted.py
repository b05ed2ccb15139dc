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
# C0 and C1 controls, DEL, line and paragraph separators, interlinear marks, lone surrogates, and what
# Unicode calls default ignorable: zero-width and bidirectional marks, fillers, variation selectors, tag
# characters. People do not see these; models read them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u2029\ufff9-\ufffb\ud800-\udfff"
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Return `text` on one line: no control or invisible characters, at most `limit` characters."""
    # Cut first: cleaning costs time in proportion, and the text may be of any length.
    cut = text[: 4 * limit]
    # Most text is plain.
    plain = cut.isascii() and cut.isprintable()
    clean = cut.strip() if plain else _UNSEEN.sub(" ", _ESCAPES.sub("", cut)).strip()
    if len(clean) > limit or len(text) > len(cut):
        return clean[: limit - 1] + "…"
    return clean
