"""An order to build, and the states of its files that a killed worker can leave."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from trt_agent_tools.model.events import PROTOCOL
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import BuildOrder

ENGINE = b"the engine that this build makes" * 100
OLDER = b"an engine of another build"


def build_order(folder: Path, *, overwrite: bool = False, build_id: str = "b_new") -> BuildOrder:
    """Return an order that reads and writes in `folder`, named as the supervisor names files."""
    output = folder / "m.engine"
    hidden = folder / f".{output.name}.{build_id}"
    return BuildOrder(
        protocol=PROTOCOL,
        build_id=build_id,
        backend="replay",
        model=str(folder / "m.onnx"),
        output=str(output),
        partial_engine=f"{hidden}.partial",
        manifest=f"{output}.json",
        partial_manifest=f"{hidden}.json.partial",
        roots=[str(folder)],
        options=BuildOptions(overwrite=overwrite),
    )


def manifest_for(engine: bytes, order: BuildOrder) -> Manifest:
    """Return a manifest that is true of `engine`."""
    nothing = FileDigest(path=order.model, bytes=0, sha256="")
    return Manifest(
        build_id=order.build_id,
        created_at="2026-01-31T12:00:00+00:00",
        backend="replay",
        library="replay",
        versions={},
        device="cpu",
        model=nothing,
        engine=FileDigest(
            path=order.output, bytes=len(engine), sha256=hashlib.sha256(engine).hexdigest()
        ),
    )


def manifest_text(engine: bytes, order: BuildOrder) -> str:
    return manifest_for(engine, order).model_dump_json(indent=2) + "\n"


def put_older(order: BuildOrder) -> None:
    """Put an engine of an earlier build at the output, with its manifest."""
    folder = Path(order.output).parent
    earlier = build_order(folder, build_id="b_older")
    Path(order.output).write_bytes(OLDER)
    Path(order.manifest).write_text(manifest_text(OLDER, earlier))


def files(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its content."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


Step = tuple[str, Callable[[BuildOrder], None]]


def _half_engine(order: BuildOrder) -> None:
    Path(order.partial_engine).write_bytes(ENGINE[: len(ENGINE) // 2])


def _whole_engine(order: BuildOrder) -> None:
    Path(order.partial_engine).write_bytes(ENGINE)


def _half_manifest(order: BuildOrder) -> None:
    text = manifest_text(ENGINE, order)
    Path(order.partial_manifest).write_text(text[: len(text) // 2])


def _whole_manifest(order: BuildOrder) -> None:
    Path(order.partial_manifest).write_text(manifest_text(ENGINE, order))


def _place_engine(order: BuildOrder) -> None:
    if order.options.overwrite:
        Path(order.partial_engine).replace(order.output)
    else:
        os.link(order.partial_engine, order.output)


def _place_manifest(order: BuildOrder) -> None:
    Path(order.partial_manifest).replace(order.manifest)


def _clear(order: BuildOrder) -> None:
    Path(order.partial_engine).unlink(missing_ok=True)


STEPS: tuple[Step, ...] = (
    ("half the engine", _half_engine),
    ("the engine", _whole_engine),
    ("half the manifest", _half_manifest),
    ("the manifest", _whole_manifest),
    ("engine in place", _place_engine),
    ("both in place", _place_manifest),
    ("cleared", _clear),
)
"""What a worker does to its files, in order: a kill falls after any of these steps."""

FIRST_COMPLETE = 5
"""After so many steps the engine is in place, and the build has succeeded whatever comes."""


def work_until(order: BuildOrder, steps: int) -> None:
    """Bring the files into the state in which a worker killed after `steps` steps leaves them."""
    for _, step in STEPS[:steps]:
        step(order)
