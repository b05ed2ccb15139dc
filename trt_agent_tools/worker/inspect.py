"""Looks at a model without building it, and without loading a weight."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import (
    MAX_LINE_BYTES,
    Inspected,
    JsonValue,
    Outcome,
    encode_event,
)
from trt_agent_tools.model.findings import Operator, Sidecar
from trt_agent_tools.model.request import InspectOrder
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.description import Description, describe
from trt_agent_tools.worker.digest import digest_together
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import load_library
from trt_agent_tools.worker.opened import OpenedFile, OpenedModel, check_unchanged
from trt_agent_tools.worker.operators import UnknownError, not_taken
from trt_agent_tools.worker.sidecars import Sidecars, look_for_sidecars
from trt_agent_tools.worker.skeleton import read_skeleton

_MOST_TOLD = 2000
"""So many entries of a list are told at most, fewer where the event would not fit on a line."""

_MOST_NOTES = 50

_LISTS = (
    *("inputs", "outputs", "operators", "unsupported_operators"),
    *("opset", "sidecars", "missing_sidecars"),
)


@dataclass(frozen=True, slots=True)
class _Files:
    """The model's file and those of its external data, open."""

    model: OpenedFile
    sidecars: Sidecars

    @property
    def all(self) -> list[OpenedFile]:
        return [self.model, *self.sidecars.files]

    def name(self, sidecar: OpenedFile) -> str:
        """Return the name that the model has for a sidecar."""
        return str(sidecar.path.relative_to(self.model.path.parent))

    def sizes(self) -> list[Sidecar]:
        return [
            Sidecar(one_line(self.name(file)), file.stamp.bytes) for file in self.sidecars.files
        ]


def inspect_model(order: InspectOrder, channel: Channel) -> Outcome:
    """Tell what is found in the order's model.

    Raises:
        BuildFault: it is no model, cannot be read, changed meanwhile, or leads outside the roots.
    """
    with OpenedModel.of(order) as model:
        files = _Files(model.file, look_for_sidecars(model))
        channel.emit(_fitting(_look(order, files, channel)))
    return Outcome.SUCCEEDED


def _look(order: InspectOrder, files: _Files, channel: Channel) -> Inspected:
    found = describe(read_skeleton(files.model))
    if not found.outputs:
        # Random bytes can be a valid protobuf message that says nothing.
        raise BuildFault(
            ErrorCode.INVALID_MODEL,
            f"{files.model.name} holds no network: there is no output in it",
            "Check that the file is the ONNX model that you mean.",
        )
    notes = _oddities(found, files)
    unsupported = _unsupported(order, found, notes)
    sha256 = _digest(order, files, channel.now(), notes)
    sidecars = files.sizes()
    check_unchanged(files.all)
    return Inspected(
        at=channel.now(),
        bytes=files.model.stamp.bytes + sum(sidecar.bytes for sidecar in sidecars),
        ir_version=found.ir_version,
        opset=found.opset,
        producer=found.producer,
        inputs=found.inputs,
        outputs=found.outputs,
        operators=_counts(found),
        unsupported_operators=unsupported,
        weights=found.weights,
        sidecars=sidecars,
        missing_sidecars=files.sidecars.missing,
        sha256=sha256,
        notes=notes,
    )


def _oddities(found: Description, files: _Files) -> list[str]:
    """Return what of the files does not fit what the model says of them."""
    notes = []
    for file in files.sidecars.files:
        needed = found.ends.get(files.name(file), 0)
        size = file.stamp.bytes
        if size < needed:
            notes.append(
                f"{one_line(file.name, MAX_NAME)} has {size} bytes, and the weights in it need {needed}: "
                "it may be cut short"
            )
    return notes


def _unsupported(order: InspectOrder, found: Description, notes: list[str]) -> list[str] | None:
    asked = [operator for operator in found.operators if operator not in found.functions]

    def report(name: str, requested: JsonValue, effective: JsonValue) -> None:
        """Leave an option that was applied untold: nothing is built with it."""

    try:
        library = load_library(order.backend)
        return [_shown(each) for each in not_taken(library, asked, order.plugins, report)]
    except UnknownError as unknown:
        notes.append(f"not known which operators are supported: {unknown}")
    except BuildFault as fault:
        notes.append(f"not known which operators are supported: {fault.info.message}")
    return None


def _digest(order: InspectOrder, files: _Files, now: float, notes: list[str]) -> str | None:
    if files.sidecars.missing:
        notes.append("no sha256: some of the model's files are missing")
        return None
    try:
        digest = digest_together(files.all, order.time_limit_s - now)
    except OSError as error:
        notes.append(f"no sha256: {error.strerror}")
        return None
    if digest is None:
        notes.append("no sha256: reading all of the weights would take too long")
    return digest


def _counts(found: Description) -> dict[str, int]:
    counts: dict[str, int] = {}
    for operator, count in found.operators.most_common():
        # Two names may look the same once they are clean.
        shown = _shown(operator)
        counts[shown] = counts.get(shown, 0) + count
    return counts


def _shown(operator: Operator) -> str:
    return one_line(operator.shown, MAX_NAME)


def _fitting(told: Inspected) -> Inspected:
    """Return `told` with its longest lists cut so that it fits on a line of the protocol."""
    whole = {name: len(getattr(told, name) or ()) for name in _LISTS}
    lengths = {name: min(length, _MOST_TOLD) for name, length in whole.items()}
    while len(encode_event(fitting := _cut(told, whole, lengths))) > MAX_LINE_BYTES:
        largest = max(_LISTS, key=lambda name: len(repr(getattr(fitting, name))))
        lengths[largest] //= 2
    return fitting


def _cut(told: Inspected, whole: Mapping[str, int], lengths: Mapping[str, int]) -> Inspected:
    return replace(
        told,
        inputs=told.inputs[: lengths["inputs"]],
        outputs=told.outputs[: lengths["outputs"]],
        operators=dict(islice(told.operators.items(), lengths["operators"])),
        opset=dict(islice(told.opset.items(), lengths["opset"])),
        unsupported_operators=told.unsupported_operators
        and told.unsupported_operators[: lengths["unsupported_operators"]],
        sidecars=told.sidecars[: lengths["sidecars"]],
        missing_sidecars=told.missing_sidecars[: lengths["missing_sidecars"]],
        notes=[
            *told.notes[:_MOST_NOTES],
            *(
                f"{whole[name] - length} of {whole[name]} {name.replace('_', ' ')} are left out"
                for name, length in lengths.items()
                if length < whole[name]
            ),
        ],
    )
