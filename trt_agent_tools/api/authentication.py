"""How a caller over TCP is known: by a bearer token that somebody vouches for."""

from typing import Protocol

from trt_agent_tools.supervisor.principals import Caller


class UnjudgedError(Exception):
    """Whether a token is good cannot be told now: nobody is let in by one. Its text is for the log."""


class ScopeMissingError(Exception):
    """The token is good, and was not issued for this; the text is the scope that it lacks."""


class Authenticator(Protocol):
    """Vouches for tokens of one kind."""

    async def caller(self, token: str) -> Caller | None:
        """Return whose token it is; None if it is not known here, or no longer good.

        Raises:
            UnjudgedError: that cannot be told now.
            ScopeMissingError: it was not issued for this server's use.
        """
