"""A build that does what a test says, at the times that it says, and tells observers as a real one does."""

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import Origin, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.model.verdict import Action, Rule, Verdict
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildFacts, BuildView
from trt_agent_tools.supervisor.observer import Observers

MODEL = "/srv/secret-folder/resnet.onnx"


class ScriptedBuild:
    """Its clock stands still until `at` is set; it begins accepted."""

    def __init__(
        self, observers: Observers, build_id: str = "b_1", traceparent: str | None = None
    ) -> None:
        self.facts = BuildFacts(
            build_id=build_id,
            label="of nobody's business",
            policy="default",
            backend="replay",
            model=MODEL,
            output="/srv/secret-folder/resnet.engine",
            created_at="2026-01-31T12:00:00+00:00",
            session_id="s_secret",
        )
        self.request = StartRequest(model=MODEL, traceparent=traceparent)
        self.view = BuildView()
        self.at = 0.0
        self._observers = observers
        observers.accepted(self)

    def now(self) -> float:
        return self.at

    def _tell(self, event: StateChanged | Noted | VerdictGiven) -> None:
        self.view = fold(self.view, event)
        self._observers.told(self, event)

    def note(self, text: str) -> None:
        self._tell(Noted(self.at, text))

    def give(self, rule: Rule, action: Action) -> None:
        verdict = Verdict(rule, action, 5.0, {rule.value: 6.0}, self.view.seq, self.at, "too long")
        self._tell(VerdictGiven(self.at, verdict))

    def move(self, state: State, reason: Reason | None = None, *, at: float) -> None:
        """Change the state; a failed one has an error that names files."""
        self.at = at
        error = None
        if state is State.FAILED:
            error = ErrorInfo(ErrorCode.BUILDER_ERROR, f"no tactic for {MODEL}", "Try another.")
        device = "gpu0" if state is State.STARTING else None
        self._tell(StateChanged(at, state, reason, device, error=error))

    def run(self, state: State, reason: Reason, *, queue_s: float, gpu_s: float) -> None:
        """Go through all states to the end."""
        self.move(State.STARTING, at=queue_s)
        self.move(State.BUILDING, at=queue_s)
        self.move(state, reason, at=queue_s + gpu_s)

    def start_phase(
        self,
        instance: int,
        name: str,
        *,
        at: float,
        parent: int | None = None,
        steps: int = 1,
        origin: Origin = Origin.TENSORRT,
    ) -> None:
        self.view = fold(self.view, PhaseStarted(at, instance, name, steps, parent, origin))

    def step(self, instance: int, number: int, *, at: float) -> None:
        self.view = fold(self.view, StepCompleted(at, instance, number))

    def finish_phase(self, instance: int, *, at: float) -> None:
        self.view = fold(self.view, PhaseFinished(at, instance))
