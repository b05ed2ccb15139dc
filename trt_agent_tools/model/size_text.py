"""Sizes for people."""

_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def format_size(size: int) -> str:
    """Return a size in bytes as text, such as "97.8 MB"."""
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
