"""What goes wrong with a journal, told in words that lead to a remedy."""

from pathlib import Path


class JournalError(Exception):
    """The journal cannot be opened, read or written. Its text says which, and why."""


class RecordRefusedError(JournalError):
    """The journal works; this record contradicts what it holds, and nothing of it was stored.

    Its build or session is not known, its idempotency key belongs to another build, or a value is out
    of range.
    """


class NoAnswerError(JournalError):
    """The journal has not answered in time."""


_CAUSES = (
    ("disk is full", "the disk is full"),
    ("readonly", "it is read-only"),
    ("read-only", "it is read-only"),
    ("malformed", "the file is corrupt"),
    ("not a database", "the file is corrupt: it is no SQLite database"),
    ("locked", "another process keeps it locked"),
    ("unable to open", "the file cannot be opened"),
)
"""What SQLite says, and what it means: error codes are there from Python 3.11 on only."""


def unusable(path: Path, verb: str, error: Exception) -> JournalError:
    """Return the error that tells why the journal cannot be `verb` (opened, read, written)."""
    said = str(error)
    cause = next((meaning for part, meaning in _CAUSES if part in said), None)
    why = said if cause is None else f"{cause} ({said})"
    return JournalError(f"the journal {path} cannot be {verb}: {why}")
