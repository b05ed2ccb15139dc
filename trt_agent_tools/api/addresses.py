"""By which names a server over TCP may be called, and from which web pages.

A page in the user's browser can have a name of its own point at this host. Its requests carry that
name: whoever calls by a name that the operator did not give is turned away.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import Self

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line

ANY_PORT = ":*"
"""Ends the name of a host whose port does not matter."""

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")
_HTTP_PORT = 80


@dataclass(frozen=True, slots=True)
class Addresses:
    """The `Host` and `Origin` headers that are taken, in lower case; see `ANY_PORT`."""

    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    @classmethod
    def of(
        cls, bound: Sequence[str], port: int, *, hosts: Sequence[str], origins: Sequence[str]
    ) -> Self:
        """Return those of a server that is bound to `port` on `bound`, and what its operator adds.

        Raises:
            Refusal: what the operator gave is no name of a host, or no origin.
        """
        names = dict.fromkeys([*(_in_url(name.lower()) for name in bound), *_LOCAL_NAMES])
        own = [f"{name}:{port}" for name in names]
        if port == _HTTP_PORT:
            own += names
        added: list[str] = []
        for name in hosts:
            _check("--allow-host", name.lower(), _HOST, "builds.example.com")
            added.append(name.lower())
            if not re.search(r":[0-9]+$", name):
                added.append(name.lower() + ANY_PORT)
        for origin in origins:
            _check("--allow-origin", origin.lower(), _ORIGIN, "https://builds.example.com")
        return cls(
            hosts=(*own, *added),
            origins=(*(f"http://{name}" for name in own), *(origin.lower() for origin in origins)),
        )

    def takes_host(self, values: Sequence[bytes]) -> bool:
        """Whether a request with these `Host` headers is for this server."""
        return len(values) == 1 and any(_fits(_text(values[0]), name) for name in self.hosts)

    def takes_origin(self, values: Sequence[bytes]) -> bool:
        """Whether a request may come from these `Origin`s. Programs other than browsers send none."""
        return not values or (len(values) == 1 and _text(values[0]) in self.origins)


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Return the family and the address to bind to for `host`, the first that it has.

    Raises:
        Refusal: it has none.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except (OSError, UnicodeError) as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--host {one_line(host, 80)}: {error}",
            "Give an address of this host, such as 127.0.0.1.",
        ) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from this host alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def is_wildcard(address: str) -> bool:
    """Whether an address stands for every address of this host."""
    return ipaddress.ip_address(address.partition("%")[0]).is_unspecified


def url_of(host: str, port: int) -> str:
    """Return the URL of a server."""
    return f"http://{_in_url(host)}:{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _text(value: bytes) -> str:
    return value.decode("latin-1").lower()


def _fits(host: str, name: str) -> bool:
    if not name.endswith(ANY_PORT):
        return host == name
    known, _, port = host.rpartition(":")
    return known == name.removesuffix(ANY_PORT) and port.isdecimal()


def _check(option: str, value: str, pattern: re.Pattern[str], example: str) -> None:
    if not pattern.fullmatch(value):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{option} {one_line(value, 80)!r} is not of the form that a browser sends",
            f"Give one such as {example}, with a port if it is not the usual one.",
        )
