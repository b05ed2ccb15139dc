"""Carries one build from its device to its end: worker, events, activity, ladder, verdict."""

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    EngineWritten,
    InputsDigested,
    ModelRead,
    Origin,
    PhaseStarted,
    Ready,
    WorkerEvent,
)
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.supervisor.activity import sample_activity
from trt_agent_tools.supervisor.artefact import Artefact, settle_artefact
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.chronicle import Chronicle
from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.estimates.history import History
from trt_agent_tools.supervisor.estimates.next_try import next_try
from trt_agent_tools.supervisor.outcome import Heard, judge
from trt_agent_tools.supervisor.process.ladder import Climb, climb, kill
from trt_agent_tools.supervisor.process.launch import Worker, launch, tell
from trt_agent_tools.supervisor.process.pump import BadLine, EventReader, ProtocolError, read_lines

DRAIN_S = 2.0
"""How long the last events may take to be read after the worker's exit."""

MOST_REFINEMENTS = 10
"""So often past builds are asked again of one build."""

REAP_S = 2.0
"""How long the exit status may take to arrive once the worker has exited."""

_log = logging.getLogger(__name__)


class Run:
    """A build that has its device. Use once: `await Run(...).to_the_end()`."""

    def __init__(
        self, build: Build, device: Device, chronicle: Chronicle, history: History
    ) -> None:
        self._build = build
        self._chronicle = chronicle
        self._history = history
        self._told_more = anyio.Event()
        self._device = device
        self._heard = Heard()
        self._broken: str | None = None
        self._can_ask = True
        self._climb: Climb | None = None
        self._proposals: tuple[Proposal, ...] = ()
        self._wrote = False
        self.artefact: Artefact | None = None
        """The engine, once the build has ended with one."""
        self.gone = True
        """Whether every process of the build is proven gone, so that its device may be used again."""

    async def to_the_end(self) -> None:
        """Build, and move the starting build to a terminal state, once every process is proven gone.

        While one outlives SIGKILL this does not return, and the device stays leased.
        """
        build = self._build
        try:
            worker = await launch(
                folder=build.folder,
                log=build.log,
                visible_device=self._device.visible,
                token=build.token,
            )
        except OSError as error:
            await build.move(
                State.FAILED,
                Reason.WORKER_CRASH,
                error=ErrorInfo(
                    ErrorCode.WORKER_CRASHED,
                    f"the build's process could not be started: {error}",
                    "Check memory, process limits and the server's Python installation.",
                ),
            )
            return
        self.gone = False
        stuck = False
        try:
            if not await self._supervise(worker):
                stuck = True
                await self._outlast(worker)
            self.gone = True
        finally:
            # Whatever went wrong here, also a cancelled task: no process of the build stays, unless
            # SIGKILL was seen not to work.
            if not (self.gone or stuck):
                with anyio.CancelScope(shield=True):
                    self.gone = await kill(worker)
        await self._conclude(worker)

    async def _supervise(self, worker: Worker) -> bool:
        """Watch the worker until it is gone; return whether all of its processes are."""
        drained, laddered = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            order = self._build.order.model_copy(update={"device": self._device.name})
            tasks.start_soon(tell, worker, order)
            tasks.start_soon(self._read_events, worker, drained)
            tasks.start_soon(
                sample_activity, self._build, worker.tree, self._device, self._chronicle.progress
            )
            tasks.start_soon(self._chronicle.started, self._build, worker.process.pid)
            tasks.start_soon(self._end_when_asked, worker, laddered)
            tasks.start_soon(self._refine_outlook)
            await _first(worker.tree.worker_exit, laddered.wait)
            if self._build.cancel_asked.is_set():
                await laddered.wait()
            # The worker is gone; what it started and left running goes too.
            proven = await kill(worker)
            with anyio.move_on_after(DRAIN_S):
                await drained.wait()
            tasks.cancel_scope.cancel()
        return proven

    async def _outlast(self, worker: Worker) -> None:
        """Say that the end is not proven, and wait for it, however long that takes."""
        self._build.outlives_kill = True
        await self._build.note(
            "A process of this build is still there after SIGKILL, stuck in the kernel or a driver. "
            "The build is not over, and its device stays out of service."
        )
        _log.error("build %s: a process outlives SIGKILL", self._build.facts.build_id)
        await worker.tree.all_exits()

    async def _conclude(self, worker: Worker) -> None:
        """Judge how the build ended, once all of its processes are gone."""
        build = self._build
        with anyio.move_on_after(REAP_S):
            await worker.process.wait()
        await worker.process.aclose()
        artefact, problem = await anyio.to_thread.run_sync(_settle, build)
        self.artefact = artefact
        ending = judge(
            self._heard,
            exit_status=worker.process.returncode,
            artefact=artefact,
            request=build.cancel_request,
            climb=self._climb,
            broken=self._broken,
            where=build.snapshot().current,
            peak_rss_bytes=build.peak_rss_bytes,
            elapsed_s=build.now(),
        )
        if artefact and not self._wrote:
            # The worker was killed between moving its files and saying so.
            build.record(
                EngineWritten(
                    build.now(),
                    artefact.engine,
                    artefact.bytes,
                    artefact.sha256,
                    artefact.manifest,
                )
            )
        if ending.state is State.SUCCEEDED:
            await self._learn()
        for note in (ending.note, problem):
            if note:
                await build.note(note)
        await build.move(
            ending.state,
            ending.reason,
            ended_by=ending.ended_by,
            error=ending.error,
            proposals=self._proposals if ending.state is State.CANCELLED else (),
        )

    async def _read_events(self, worker: Worker, drained: anyio.Event) -> None:
        stdout = worker.process.stdout
        if stdout is None:
            return
        reader = EventReader(accepted=self._build.accepted, launched=worker.launched)
        try:
            async for line in read_lines(stdout):
                event = reader.read(line, anyio.current_time())
                if isinstance(event, BadLine):
                    await self._build.note(
                        f"The worker sent a line that is no event: {event.text!r}"
                    )
                elif event is not None:
                    await self._take(event)
        except ProtocolError as error:
            self._broken = str(error)
            await kill(worker)
        finally:
            drained.set()

    async def _take(self, event: WorkerEvent) -> None:
        build = self._build
        self._heard.take(event)
        self._wrote = self._wrote or isinstance(event, EngineWritten)
        if isinstance(event, Ready):
            self._can_ask = event.capabilities.cooperative_cancel
        build.record(event)
        if isinstance(event, Ready | ModelRead | InputsDigested):
            self._told_more.set()
        if (
            build.view.state is State.STARTING
            and isinstance(event, PhaseStarted)
            and event.origin is Origin.TENSORRT
        ):
            await build.begin_building()

    async def _refine_outlook(self) -> None:
        """Ask past builds again whenever more is known of this one."""
        # What a worker that is well tells comes to three or four; a broken one keeps nobody busy.
        for _ in range(MOST_REFINEMENTS):
            await self._told_more.wait()
            self._told_more = anyio.Event()
            await self._ask_past_builds()

    async def _ask_past_builds(self) -> None:
        build = self._build
        if build.outlook is not None:
            build.expect(await self._history.refined(build.outlook, build.view, self._device.name))

    async def _learn(self) -> None:
        """Find out what of the build is kept for later ones, beside what its events told."""
        build = self._build
        # What the worker told last may not have been seen to.
        await self._ask_past_builds()
        if build.outlook is not None:
            build.sidecars = await self._history.sidecars(build.outlook, build.view, build.order)

    async def _propose(self, reason: Reason) -> None:
        # While the ladder is climbed, so that the device is held no longer for it.
        self._proposals = await next_try(self._build, self._history, reason)

    async def _end_when_asked(self, worker: Worker, laddered: anyio.Event) -> None:
        build = self._build
        await build.cancel_asked.wait()
        request = build.cancel_request
        if request is not None:
            async with anyio.create_task_group() as tasks:
                # The ladder does not wait for the disk.
                tasks.start_soon(build.move, State.CANCELLING, request.reason)
                tasks.start_soon(self._propose, request.reason)
                self._climb = await climb(
                    worker, request, can_ask=self._can_ask, hurried=build.hurried
                )
        laddered.set()


async def _first(*conditions: Callable[[], Awaitable[object]]) -> None:
    """Return when one of the conditions is met."""
    async with anyio.create_task_group() as tasks:

        async def wait(condition: Callable[[], Awaitable[object]]) -> None:
            await condition()
            tasks.cancel_scope.cancel()

        for condition in conditions:
            tasks.start_soon(wait, condition)


def _settle(build: Build) -> tuple[Artefact | None, str | None]:
    try:
        return settle_artefact(build.order), None
    except OSError as error:
        return None, f"The output could not be checked or cleared: {error}"
