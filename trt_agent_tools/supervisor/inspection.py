"""Looks at models, each in a worker of its own: their bytes come from anywhere."""

from pathlib import Path
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import PROTOCOL, Failed, Inspected
from trt_agent_tools.model.findings import TensorInfo
from trt_agent_tools.model.inspection import Expected, Inspection, InspectRequest
from trt_agent_tools.model.request import Backend, InspectOrder
from trt_agent_tools.model.service import INSPECT_S
from trt_agent_tools.model.size_text import format_size
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.admission import choose_backend, judge_model, judge_plugins
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.estimates.history import History
from trt_agent_tools.supervisor.process.errand import NoAnswerError, ask
from trt_agent_tools.supervisor.process.pump import ProtocolError
from trt_agent_tools.supervisor.proposal import dynamic_inputs, missing_profiles, propose
from trt_agent_tools.supervisor.shares import share_of

AT_ONCE = 4
"""So many models are looked at at the same time; other calls wait, within the bound."""

AT_ONCE_OF_ONE = 2
"""Likewise for one principal. Its other calls wait behind these, and not before another's."""

MEMORY_BYTES = 1 << 30
"""What a worker may allocate: a graph is small without its weights."""

_END_S = 2.0
"""Of the bound, kept for ending the worker."""

_TELL_S = 2.0
"""Of the bound, kept for what comes behind the digest, on a host that is busy."""

_NO_DEVICE = ""

_NAMED = 5


class Inspector:
    """Looks at models, `AT_ONCE` at a time, each within `INSPECT_S`."""

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self._devices = devices
        self._places = anyio.CapacityLimiter(AT_ONCE)
        self._shares: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def inspect(
        self,
        request: InspectRequest,
        config: SupervisorConfig,
        history: History,
        *,
        principal: str,
    ) -> Inspection:
        """See `BuildService.inspect`. Principals take turns: each waits for its own calls first.

        A call that is cancelled takes its worker along.

        Raises:
            Refusal: as `admit` has them; what a build would say of the model; TIMED_OUT.
        """
        ends = anyio.current_time() + INSPECT_S - _END_S
        with anyio.move_on_after(INSPECT_S - _END_S):
            async with self._share(principal), self._places:
                order = await anyio.to_thread.run_sync(
                    self._order, request, config, abandon_on_cancel=True
                )
                left = ends - _TELL_S - anyio.current_time()
                found = await _look(order.model_copy(update={"time_limit_s": max(left, 0.0)}))
                expected = await history.inspected(order.backend, request.options, found)
            return _told(request, order, found, expected)
        raise Refusal(
            ErrorCode.TIMED_OUT,
            f"looking at {one_line(request.model)} took longer than {INSPECT_S:.0f} s",
            "Call again when the host is less busy, or start the build without looking.",
        )

    def _share(self, principal: str) -> anyio.CapacityLimiter:
        """Return what this principal's calls go through; whoever waits or is inside keeps it alive."""
        if (share := self._shares.get(principal)) is None:
            share = anyio.CapacityLimiter(share_of(principal, whole=AT_ONCE, share=AT_ONCE_OF_ONE))
            self._shares[principal] = share
        return share

    def _order(self, request: InspectRequest, config: SupervisorConfig) -> InspectOrder:
        if request.backend is Backend.REPLAY:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                "the replay backend plays recordings: there is no model to look at",
                "Use backend auto, tensorrt or tensorrt_rtx.",
            )
        backend = choose_backend(request.backend, config, self._devices)
        assert backend != "replay"  # noqa: S101  (for mypy: it is chosen only when asked for)
        model, identity = judge_model(request.model, config.roots)
        return InspectOrder(
            protocol=PROTOCOL,
            backend=backend,
            model=str(model),
            roots=[str(root) for root in config.roots],
            plugins=judge_plugins(request.options.plugins, config),
            model_identity=identity,
            memory_limit_bytes=MEMORY_BYTES,
            time_limit_s=0.0,
        )


async def _look(order: InspectOrder) -> Inspected:
    try:
        answer = await ask(order, visible_device=_NO_DEVICE)
    except (NoAnswerError, OSError) as error:
        raise Refusal(
            ErrorCode.WORKER_CRASHED,
            f"the process that looked at the model died: {one_line(str(error))}",
            "Check that nothing writes to the model; another try uses a fresh process.",
        ) from error
    except ProtocolError as error:
        raise Refusal(
            ErrorCode.PROTOCOL_ERROR, one_line(str(error)), "Reinstall this package."
        ) from error
    if isinstance(answer, Failed):
        error_info = answer.error
        raise Refusal(error_info.code, error_info.message, error_info.hint, error_info.details)
    if not isinstance(answer, Inspected):
        raise Refusal(
            ErrorCode.PROTOCOL_ERROR,
            "the worker did not look at the model as it was told to",
            "Reinstall this package.",
        )
    return answer


def _told(
    request: InspectRequest, order: InspectOrder, found: Inspected, expected: Expected | None
) -> Inspection:
    profiles = request.options.profiles
    missing = missing_profiles(found.inputs, profiles)
    proposed = propose(found.inputs, profiles[0] if profiles else {}) if missing else {}
    return Inspection(
        model=one_line(order.model),
        summary=_summary(Path(order.model).name, order.backend, found, missing, expected),
        bytes=found.bytes,
        sha256=found.sha256,
        backend=order.backend,
        ir_version=found.ir_version,
        opset=found.opset,
        producer=found.producer,
        inputs=found.inputs,
        outputs=found.outputs,
        dynamic_inputs=dynamic_inputs(found.inputs),
        missing_profiles=missing,
        proposed_profiles=proposed or None,
        operators=found.operators,
        unsupported_operators=found.unsupported_operators,
        weights=found.weights,
        sidecars=found.sidecars,
        missing_sidecars=found.missing_sidecars,
        expected=expected,
        notes=found.notes or None,
    )


def _summary(
    name: str, backend: str, found: Inspected, missing: list[str], expected: Expected | None
) -> str:
    """Return one line: what the model is, then what has to be done before it builds."""
    nodes = sum(found.operators.values())
    opset = found.opset.get("ai.onnx")
    parts = [
        f"{one_line(name, 100)}: {nodes} nodes, {format_size(found.weights.bytes)} of weights"
        + (f", opset {opset}" if opset is not None else "")
        + f", {_tensors(found.inputs)} -> {_tensors(found.outputs)}"
    ]
    if found.missing_sidecars:
        parts.append(f"missing files of weights: {_some(found.missing_sidecars)}")
    if found.unsupported_operators:
        parts.append(f"{backend} does not support {_some(found.unsupported_operators)}")
    if missing:
        parts.append(
            f"needs options.profiles for {_some(missing)}; proposed_profiles is a place to start from"
        )
    if expected is not None:
        low, high = format_duration(expected.low_s), format_duration(expected.high_s)
        builds = f"{expected.builds} build{'' if expected.builds == 1 else 's'}"
        parts.append(
            f"expected to build in about {format_duration(expected.build_s)} ({low} to {high}, from "
            f"{builds} of {'it' if expected.same else 'similar models'})"
        )
    return "; ".join(parts)


def _tensors(tensors: list[TensorInfo]) -> str:
    return _some([f"{tensor.name} {tensor.dtype}{_shape(tensor)}" for tensor in tensors])


def _shape(tensor: TensorInfo) -> str:
    return "" if tensor.shape is None else f"[{','.join(map(str, tensor.shape))}]"


def _some(texts: list[str]) -> str:
    left_out = len(texts) - _NAMED
    shown = ", ".join(one_line(text, 100) for text in texts[:_NAMED])
    return f"{shown} and {left_out} more" if left_out > 0 else shown or "none"
