"""The builds that a supervisor has in memory: those that wait or run, and the last that ended."""

from collections.abc import Iterator

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.admission import Admitted
from trt_agent_tools.supervisor.archive import other_request
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.sessions import OpenSession
from trt_agent_tools.supervisor.shares import share_of

MAX_LIVE = 1000
"""So many builds may wait or run; one more is refused."""

MAX_LIVE_OF_ONE = MAX_LIVE // 4
"""Likewise of one principal."""

QUEUES_OF_ONE = 4
"""So many times what the policy lets one session queue may all sessions of a principal queue together:
sessions cost nothing to open."""

MAX_REMEMBERED = 32
"""So many ended builds stay in memory; the journal has them all."""


class Builds:
    """Finds builds by their id and by the idempotency key that they were started with."""

    def __init__(self) -> None:
        self._builds: dict[str, Build] = {}
        self._keys: dict[tuple[str, str], Build] = {}

    def __iter__(self) -> Iterator[Build]:
        """Yield all of them, as they are now."""
        return iter([*self._builds.values()])

    def live(self) -> list[Build]:
        """Return those that have not ended."""
        return [build for build in self._builds.values() if not build.has_ended]

    def get(self, build_id: str) -> Build | None:
        """Return the build of this id, whoever it belongs to."""
        return self._builds.get(build_id)

    def of(self, build_id: str, owner: str) -> Build | None:
        """Return the build of this id if it belongs to `owner`."""
        build = self._builds.get(build_id)
        return build if build is not None and build.session.owner == owner else None

    def repeated(self, request: StartRequest, owner: str) -> Build | None:
        """Return the build that an earlier request with the same idempotency key started.

        Raises:
            Refusal: the key was used for another request.
        """
        key = request.idempotency_key
        build = self._keys.get((owner, key)) if key else None
        if build is not None and not build.request.asks_the_same(request):
            raise other_request(build.facts.build_id)
        return build

    def check_room(self, admitted: Admitted, session: OpenSession) -> None:
        """Judge whether one more may wait in `session` and write where `admitted` says.

        Raises:
            Refusal: another build writes there, or too many wait.
        """
        live = self.live()
        files = {str(admitted.output), str(admitted.manifest)}
        for other in live:
            if files & {other.order.output, other.order.manifest}:
                raise _busy(admitted, other if other.session.owner == session.owner else None)
        _check_queue(live, session)
        _check_live(live, session.owner)

    def add(self, build: Build) -> None:
        """Know a build from here on, so that a second request for its output or key finds it."""
        self._builds[build.facts.build_id] = build
        build.session.has_built = True
        if key := build.request.idempotency_key:
            self._keys[build.session.owner, key] = build

    def remove(self, build: Build) -> None:
        """Know a build no more."""
        del self._builds[build.facts.build_id]
        if key := build.request.idempotency_key:
            self._keys.pop((build.session.owner, key), None)

    def forget_oldest(self) -> None:
        """Leave builds that ended long ago to the journal."""
        ended = [build for build in self._builds.values() if build.has_ended]
        for build in ended[: max(0, len(ended) - MAX_REMEMBERED)]:
            self.remove(build)


def _check_queue(live: list[Build], session: OpenSession) -> None:
    waiting = [
        build
        for build in live
        if build.session.owner == session.owner and build.view.state is State.QUEUED
    ]
    in_session = sum(build.session is session for build in waiting)
    if in_session >= session.queued_builds:
        raise Refusal(
            ErrorCode.QUEUE_FULL,
            f"{in_session} builds of the session wait already, as many as its policy lets it queue",
            "Wait until some have got a device, or cancel some.",
            {"limit": "queued_builds", "queued_builds": session.queued_builds},
        )
    longest = max([session.queued_builds, *(build.session.queued_builds for build in waiting)])
    most = share_of(session.owner, whole=MAX_LIVE, share=QUEUES_OF_ONE * longest)
    if len(waiting) >= most:
        raise Refusal(
            ErrorCode.QUEUE_FULL,
            f"{len(waiting)} builds of all your sessions wait already, as many as may together",
            "Wait until some have got a device, or cancel some; another session makes no room.",
            {"limit": "queued_builds_of_principal", "queued_builds_of_principal": most},
        )


def _check_live(live: list[Build], owner: str) -> None:
    own = sum(build.session.owner == owner for build in live)
    most = share_of(owner, whole=MAX_LIVE, share=MAX_LIVE_OF_ONE)
    if own >= most:
        raise Refusal(
            ErrorCode.QUEUE_FULL,
            f"{own} builds of yours wait or run, as many as may",
            "Wait until some have ended, or cancel some.",
            {"limit": "live_builds_of_principal", "live_builds_of_principal": most},
        )
    if len(live) >= MAX_LIVE:
        raise Refusal(
            ErrorCode.QUEUE_FULL,
            f"{len(live)} builds of all callers wait or run, as many as this server takes",
            "Wait until some have ended.",
            {"limit": "live_builds", "live_builds": MAX_LIVE},
        )


def _busy(admitted: Admitted, other: Build | None) -> Refusal:
    """Return the refusal of an output that is written to; a build of another owner is not named."""
    name = one_line(admitted.output.name)
    if other is None:
        return Refusal(
            ErrorCode.OUTPUT_BUSY,
            f"another build writes to {name}",
            "Give another output, or wait.",
        )
    return Refusal(
        ErrorCode.OUTPUT_BUSY,
        f"build {other.facts.build_id} writes to {name}",
        "Wait for it, cancel it, or give another output.",
        {"build_id": other.facts.build_id},
    )
