"""What one principal may have of what all share: the one rule for every such bound."""

LOCAL = "local"
"""The principal of the operating-system user that runs the server."""


def share_of(principal: str, *, whole: int, share: int) -> int:
    """Return how much of `whole` this principal may have: `share`, but all of it for the local user.

    Who may read the state folder can do worse than fill a queue.
    """
    return whole if principal == LOCAL else share
