"""The live builds, in the order in which they came, so that one waits for another that builds the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from trt_agent_tools.model.request import BuildOrder


@dataclass(eq=False)
class Flight:
    """A build that may be waited for. `asked` is all of it that need not be read from files.

    `ended` is set at its end, `landed` when its engine is kept, or will not be; `has_engine` tells which.
    """

    order: BuildOrder
    asked: str
    ended: anyio.Event
    landed: anyio.Event = field(default_factory=anyio.Event)
    has_engine: bool = False


class Flights:
    """One may wait only for those that came before it, so that no two wait for each other."""

    def __init__(self) -> None:
        self._live: dict[str, list[Flight]] = {}

    @contextmanager
    def enter(self, order: BuildOrder, asked: str, ended: anyio.Event) -> Iterator[Flight]:
        """Be known to those that come later, until the block is left."""
        flight = Flight(order, asked, ended)
        beside = self._live.setdefault(asked, [])
        beside.append(flight)
        try:
            yield flight
        finally:
            beside.remove(flight)
            if not beside:
                del self._live[asked]
            flight.landed.set()

    def before(self, flight: Flight) -> list[Flight]:
        """Return those that came earlier, have not landed, and differ from it in files at most."""
        beside = self._live[flight.asked]
        return beside[: beside.index(flight)]

    def live(self) -> list[Flight]:
        """Return all that have not landed."""
        return [flight for beside in self._live.values() for flight in beside]
