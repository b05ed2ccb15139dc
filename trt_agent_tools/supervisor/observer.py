"""Who is told what happens to builds, beside the journal: metrics and traces."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.progress.view import BuildFacts, BuildView

_log = logging.getLogger(__name__)


class Observed(Protocol):
    """What an observer reads of a build. A view never changes: it may be kept."""

    @property
    def facts(self) -> BuildFacts:
        """What never changes."""

    @property
    def request(self) -> StartRequest:
        """What was asked for."""

    @property
    def view(self) -> BuildView:
        """What is known of it now."""

    def now(self) -> float:
        """Return the seconds since the build was accepted."""


class Observer(Protocol):
    """Is told of every build of a supervisor, in order and after the journal.

    It is called in the supervisor's event loop: it returns at once, and does nothing that waits. One that
    raises is told nothing more.
    """

    def accepted(self, build: Observed) -> None:
        """Hear of a build before anything else of it is told."""

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        """Hear of an event that the build's view has now; a terminal state is the last state."""


class Observers:
    """Tells all observers, and drops those that raise: no build is harmed by who looks at it."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = list(observers)

    def accepted(self, build: Observed) -> None:
        """See `Observer.accepted`."""
        self._tell(lambda observer: observer.accepted(build))

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        """See `Observer.told`."""
        self._tell(lambda observer: observer.told(build, event))

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for observer in [*self._observers]:
            try:
                call(observer)
            except Exception:  # noqa: BLE001  (whatever it is, it is the observer's: logged, dropped)
                _log.exception("%s failed and is dropped", type(observer).__name__)
                self._observers.remove(observer)


@dataclass(frozen=True, slots=True)
class Condition:
    """How a supervisor stands, beside its builds.

    A device that is out of service is leased for ever: a process of its build outlives SIGKILL.
    `journal_failing` is whether the last write failed; `records_owed` are kept in memory until it works.
    `builds_recovered` had lost their supervisor, and were brought to their end when this one started.
    """

    devices_free: int
    devices_leased: int
    devices_out_of_service: int
    journal_failing: bool
    records_owed: int
    builds_recovered: int
