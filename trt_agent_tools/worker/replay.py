"""Plays a recorded event file as a build: the same process, channel, orders and artefacts, no TensorRT.

What it is told to do wrong is in `replay_actions`; the file's format in `replay_file`.
"""

import math
import time
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import shake_256

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import (
    EngineWritten,
    Failed,
    InputsDigested,
    LogLine,
    OptionApplied,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    Severity,
    StepCompleted,
)
from trt_agent_tools.model.manifest import FileDigest, Manifest, OptionInEffect, PhaseTiming
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.artefact import write_artefact
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.digest import digested
from trt_agent_tools.worker.faults import BuildFault, BuildStopped
from trt_agent_tools.worker.opened import OpenedModel
from trt_agent_tools.worker.replay_actions import BurnCpu, ReplayAction
from trt_agent_tools.worker.replay_file import PlayedEvent, Recording, read_recording, schedule
from trt_agent_tools.worker.replay_perform import Stage, burn_cpu, perform, write_all
from trt_agent_tools.worker.stop import Stop


def play(order: BuildOrder, channel: Channel, stop: Stop) -> Outcome:
    """Play the event file that the order names as its model; return how that ended.

    Hello and goodbye are the caller's to say.

    Raises:
        BuildFault: the file is not valid, or the recorded build failed.
        BuildStopped: an order to cancel was seen before the engine was complete.
    """
    with OpenedModel.of(order) as model:
        recording = read_recording(model.file)
    return _Player(order, channel, stop, recording).run()


class _Player:
    """One replay. It is also what a heartbeat tells of: callbacks are counted as they are played."""

    def __init__(
        self, order: BuildOrder, channel: Channel, stop: Stop, recording: Recording
    ) -> None:
        self._order = order
        self._channel = channel
        self._stop = stop
        self._recording = recording
        self._settings = recording.settings
        instances = [e.instance for e in recording.events if isinstance(e, PhaseStarted)]
        self._stage = Stage(channel, next_instance=max(instances, default=0) + 1)
        self._live: dict[int, PhaseStarted] = {}
        self._around_tensorrt: set[int] = set()
        self._complete = False
        self._written = False
        self._timings: list[PhaseTiming] = []
        self._options: list[OptionInEffect] = []
        self.callbacks = 0
        self.last_callback: float | None = None
        channel.attach(self)

    def take_steps(self) -> list[StepCompleted]:
        """Return nothing: a recording's steps were coalesced when they were recorded."""
        return []

    def run(self) -> Outcome:
        try:
            self._play_all()
        except BuildFault:
            self._finish_live()
            raise
        except BuildStopped:
            if self._stage.late_s is None:
                self._finish_live()
                raise
            time.sleep(self._stage.late_s)
            self._finish_live()
            self._write_engine(self._recorded_engine())
        if not self._written:
            raise BuildFault(
                ErrorCode.BUILDER_ERROR,
                "the recording ends without an engine and without an error",
                'End it with an "engine_written" or a "failed" event.',
            )
        return Outcome.SUCCEEDED

    def _play_all(self) -> None:
        # Recorded times count from here, not from the worker's start: however long that took, no
        # recorded gap gets shorter.
        if not any(isinstance(event, InputsDigested) for event in self._recording.events):
            self._tell_digest()
        origin = time.monotonic()
        timeline = schedule(self._settings, self._recording.events)
        for index, due in enumerate(timeline):
            self._wait(origin + due.at_s)
            if isinstance(due.item, BurnCpu):
                follows = timeline[index + 1].at_s if index + 1 < len(timeline) else math.inf
                self._burn(due.item, origin + follows)
            elif isinstance(due.item, ReplayAction):
                began = time.monotonic()
                perform(due.item, self._stage)
                origin += time.monotonic() - began
            else:
                self._play(due.item)

    def _wait(self, until: float) -> None:
        remaining = max(0.0, until - time.monotonic())
        if not self._sees_cancel():
            time.sleep(remaining)
        elif self._stop.wait(remaining):
            raise BuildStopped(self._stop.reason)

    def _burn(self, action: BurnCpu, follows: float) -> None:
        until = follows if action.for_s is None else time.monotonic() + action.for_s
        if burn_cpu(until, self._stop if self._sees_cancel() else None):
            raise BuildStopped(self._stop.reason)

    def _sees_cancel(self) -> bool:
        """Whether a real build would look, here, at whether it was asked to end.

        While TensorRT's call runs only a completed step does, and nothing once it returned an engine.
        """
        if self._stage.ignores_cancel or self._complete:
            return False
        return self._settings.responsive or not any(
            phase.origin is Origin.TENSORRT or instance in self._around_tensorrt
            for instance, phase in self._live.items()
        )

    def _play(self, event: PlayedEvent) -> None:
        now = self._channel.now()
        if isinstance(event, EngineWritten):
            self._write_engine(event)
            return
        if isinstance(event, Failed):
            self._fail(event)
            return
        if isinstance(event, Ready):
            event = replace(event, device=self._order.device)
        if isinstance(event, InputsDigested):
            self._tell_digest()
            return
        event = replace(event, at=now)
        self._channel.emit(event)
        if isinstance(event, PhaseStarted):
            self._started(event)
        elif isinstance(event, StepCompleted):
            self._stepped(event)
        elif isinstance(event, PhaseFinished):
            self._finished(event)
        elif isinstance(event, LogLine):
            write_all(2, log_line(event))
        elif isinstance(event, OptionApplied):
            self._options.append(
                OptionInEffect(
                    name=event.name, requested=event.requested, effective=event.effective
                )
            )

    def _tell_digest(self) -> None:
        """Tell of the event file: it is what a replay is made from, whatever was recorded."""
        self._channel.emit(digested(self._channel.now(), [self._recording.digest]))

    def _started(self, event: PhaseStarted) -> None:
        self._live[event.instance] = event
        if event.origin is Origin.TENSORRT:
            self._called_back(event.at)
            self._around_tensorrt.update(
                instance for instance, phase in self._live.items() if phase.origin is Origin.WORKER
            )

    def _stepped(self, event: StepCompleted) -> None:
        phase = self._live.get(event.instance)
        if phase is None or phase.origin is not Origin.TENSORRT:
            return
        self._called_back(event.at)
        if self._stop.asked and not (self._stage.ignores_cancel or self._complete):
            raise BuildStopped(self._stop.reason)

    def _finished(self, event: PhaseFinished) -> None:
        phase = self._live.pop(event.instance, None)
        if phase is None:
            return
        self._timings.append(
            PhaseTiming(
                instance=phase.instance,
                parent=phase.parent,
                name=phase.name,
                steps=phase.steps,
                elapsed_s=round(event.at - phase.at, 6),
            )
        )
        if phase.origin is Origin.TENSORRT:
            self._called_back(event.at)
        elif event.instance in self._around_tensorrt:
            self._complete = True

    def _called_back(self, at: float) -> None:
        self.callbacks += 1
        self.last_callback = at

    def _finish_live(self) -> None:
        """End the phases that run, innermost first, as TensorRT does when a step is refused."""
        for instance in reversed(self._live):
            self._channel.emit(PhaseFinished(self._channel.now(), instance))
        self._live.clear()

    def _fail(self, event: Failed) -> None:
        if self._stop.asked and not self._stage.ignores_cancel:
            raise BuildStopped(self._stop.reason)
        error = event.error
        raise BuildFault(error.code, error.message, error.hint, error.details)

    def _recorded_engine(self) -> EngineWritten | None:
        engines = [e for e in self._recording.events if isinstance(e, EngineWritten)]
        return engines[0] if engines else None

    def _write_engine(self, recorded: EngineWritten | None) -> None:
        self._complete = True
        order = self._order
        seed = recorded.sha256 if recorded else ""
        content = shake_256(seed.encode()).digest(self._settings.engine_bytes)

        def manifest(engine: FileDigest) -> Manifest:
            return Manifest(
                build_id=order.build_id,
                label=order.label,
                policy=order.policy,
                created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                backend=order.backend,
                library="replay",
                versions={},
                device=order.device,
                model=self._recording.digest,
                engine=engine,
                options=self._options,
                phases=self._timings,
            )

        digest = write_artefact(order, memoryview(content), manifest)
        self._written = True
        self._channel.emit(
            EngineWritten(
                self._channel.now(), digest.path, digest.bytes, digest.sha256, str(order.manifest)
            )
        )


def log_line(event: LogLine) -> bytes:
    """Return a recorded log line as TensorRT's logger writes it, so that the build's log has it."""
    letter = "F" if event.severity is Severity.INTERNAL_ERROR else event.severity.value[0].upper()
    return f"[TRT] [{letter}] {one_line(event.message)}\n".encode()
