"""`inspect`: tells what a model is, before anything is built from it."""

# Imports stand where they are needed so that --help and serve start fast.
# ruff: noqa: PLC0415

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.options import AsJson, BuildRoots, Embedded, StateDir

if TYPE_CHECKING:
    from trt_agent_tools.model.findings import TensorInfo
    from trt_agent_tools.model.inspection import Inspection, InspectRequest
    from trt_agent_tools.supervisor.config import SupervisorConfig

_LABEL = 12


def inspect(
    model: Annotated[Path, typer.Argument(help="The ONNX file.", show_default=False)],
    backend: Annotated[str, typer.Option(help="auto, tensorrt or tensorrt_rtx.")] = "auto",
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=MIN:OPT:MAX",
            help="A profile, as for build: only inputs without one are told as missing; may repeat.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    root: BuildRoots = None,
    embedded: Embedded = None,
) -> None:
    """Tell what a model is without building it: inputs, operators, weights, what a build would lack."""

    def run() -> int:
        from functools import partial

        import anyio

        from trt_agent_tools.cli.request import folders_of, make_request
        from trt_agent_tools.cli.settings import load_settings, make_state_dir
        from trt_agent_tools.model.inspection import InspectRequest

        settings = load_settings(state_dir=state_dir, root=root, embedded=embedded)
        asked = make_request(model, backend=backend, profiles=profile or ())
        request = InspectRequest(model=asked.model, options=asked.options, backend=asked.backend)
        config = settings.config(*folders_of(asked))
        make_state_dir(config.state_dir)
        look = partial(_show, request, config, as_json=as_json, embedded=settings.embedded)
        return anyio.run(look)

    exit_with(run)


async def _show(
    request: "InspectRequest", config: "SupervisorConfig", *, as_json: bool, embedded: bool
) -> ExitCode:
    from trt_agent_tools.cli.service import open_service

    async with open_service(config, embedded=embedded) as service:
        found = await service.inspect(request)
    if as_json:
        print(found.model_dump_json(exclude_none=True))
    else:
        for label, text in _lines(found):
            print(f"{label:<{_LABEL}}{text}")
    return ExitCode.OK


def _lines(found: "Inspection") -> Iterator[tuple[str, str]]:
    from trt_agent_tools.model.duration import format_duration
    from trt_agent_tools.model.size_text import format_size

    yield "model", f"{found.model}, {format_size(found.bytes)}"
    if found.sha256:
        yield "sha256", found.sha256
    opsets = ", ".join(f"{domain} {version}" for domain, version in found.opset.items())
    by = f", by {found.producer}" if found.producer else ""
    yield "opset", f"{opsets} (IR version {found.ir_version}){by}"
    for label, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            yield label, f"{tensor.name}  {tensor.dtype}{_shape(tensor)}"
    yield "operators", ", ".join(f"{name} {count}" for name, count in found.operators.items())
    yield "weights", f"{found.weights.count}, {format_size(found.weights.bytes)}"
    for sidecar in found.sidecars:
        yield "in", f"{sidecar.path}, {format_size(sidecar.bytes)}"
    for path in found.missing_sidecars:
        yield "missing", path
    for name in found.unsupported_operators or []:
        yield "unsupported", f"{name} (by {found.backend})"
    proposed = found.proposed_profiles or {}
    for name in found.missing_profiles:
        shapes = proposed.get(name)
        bounds = (shapes.min, shapes.opt, shapes.max) if shapes else ()
        # As `build` takes it, to be corrected by whoever knows the use of the model.
        text = ":".join("x".join(map(str, bound)) for bound in bounds)
        yield "needs", f"--profile '{name}={text or 'MIN:OPT:MAX'}'"
    if expected := found.expected:
        low, high = format_duration(expected.low_s), format_duration(expected.high_s)
        whose = "this model and these options" if expected.same else "similar models"
        about = f"about {format_duration(expected.build_s)} to build, {low} to {high}"
        yield "takes", f"{about} (past builds of {whose}: {expected.builds})"
    for note in found.notes or []:
        yield "note", note


def _shape(tensor: "TensorInfo") -> str:
    return "" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
