"""Judges a request before anything is started: paths, roots, backend, plugins."""

import importlib.util
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import Device

Chosen = Literal["tensorrt", "tensorrt_rtx", "replay"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be carried out; every path is absolute, folders without symbolic links."""

    model: Path
    output: Path
    manifest: Path
    backend: Chosen


def admit(request: StartRequest, config: SupervisorConfig, devices: tuple[Device, ...]) -> Admitted:
    """Return where the build reads and writes and what builds it.

    Touches the file system, so call it in a thread: it may be a slow one.

    Raises:
        Refusal: the request cannot be carried out.
    """
    backend = choose_backend(request.backend, config, devices)
    model = _model(request.model, config.roots)
    named = model.with_suffix(".engine") if request.output is None else Path(request.output)
    output = _output(named, config.roots, overwrite=request.options.overwrite)
    _plugins(request.options.plugins, config)
    if request.options.timing_cache:
        _inside(Path(request.options.timing_cache), config.roots, "the timing cache")
    manifest = output.with_name(output.name + ".json")
    if manifest.is_symlink() or (manifest.exists() and not manifest.is_file()):
        raise _not_writable(manifest, "is no regular file")
    return Admitted(model, output, manifest, backend)


def choose_backend(
    wanted: Backend, config: SupervisorConfig, devices: tuple[Device, ...]
) -> Chosen:
    """Return the backend to use; `auto` takes classic TensorRT where it and a GPU are there.

    Raises:
        Refusal: the backend is not installed, or is `replay` and not enabled.
    """
    if wanted is Backend.REPLAY:
        if not config.enable_replay:
            raise Refusal(
                ErrorCode.BACKEND_UNAVAILABLE,
                "the replay backend is off",
                "It is a double for trying policies; the operator turns it on with --enable-replay.",
            )
        return "replay"
    has_gpu = any(device.visible is not None for device in devices)
    classic, rtx = (importlib.util.find_spec(name) for name in ("tensorrt", "tensorrt_rtx"))
    if wanted is Backend.TENSORRT or (wanted is Backend.AUTO and classic and has_gpu):
        if classic is None:
            raise Refusal(
                ErrorCode.BACKEND_UNAVAILABLE,
                "TensorRT is not installed here",
                'Install it: pip install "trt-agent-tools[tensorrt]"; or use backend tensorrt_rtx.',
            )
        return "tensorrt"
    if rtx is None:
        raise Refusal(
            ErrorCode.BACKEND_UNAVAILABLE,
            "TensorRT-RTX is not installed here",
            "Install it: pip install tensorrt-rtx (it has wheels for Linux and Windows on x86-64).",
        )
    return "tensorrt_rtx"


def _inside(path: Path, roots: tuple[Path, ...], what: str) -> Path:
    """Return `path` absolute, its folder free of symbolic links; refuse it outside the roots.

    A path whose last part is a symbolic link is judged by what it points to as well.
    """
    absolute = path if path.is_absolute() else roots[0] / path
    try:
        folder = absolute.parent.resolve()
        real = absolute.resolve()
    except (OSError, RuntimeError) as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{what} {one_line(str(path))} cannot be resolved: {error}",
            "Give a path without a loop of symbolic links.",
        ) from error
    named = folder / absolute.name
    if absolute.name in {"", ".", ".."}:
        named = real
    if not all(any(p.is_relative_to(root) for root in roots) for p in (named, real)):
        raise Refusal(
            ErrorCode.OUTSIDE_ROOTS,
            f"{what} {one_line(str(path))} leads outside the folders that this server may use",
            f"Use a path under {', '.join(map(str, roots))}; the operator adds others with --root.",
            {"roots": [str(root) for root in roots]},
        )
    return named


def _model(text: str, roots: tuple[Path, ...]) -> Path:
    path = _inside(Path(text), roots, "the model")
    shown = one_line(str(path))
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise Refusal(
            ErrorCode.MODEL_NOT_FOUND,
            f"there is no file {shown}",
            f"Check the path; relative ones start at {roots[0]}.",
        ) from None
    except OSError as error:
        raise Refusal(
            ErrorCode.MODEL_UNREADABLE,
            f"{shown} cannot be read: {error.strerror}",
            "Check the path.",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise Refusal(ErrorCode.NOT_A_FILE, f"{shown} is {kind}", "Give the path of an ONNX file.")
    if status.st_size == 0:
        raise Refusal(ErrorCode.MODEL_EMPTY, f"{shown} is empty", "Export or copy the model again.")
    if not os.access(path, os.R_OK):
        raise Refusal(
            ErrorCode.MODEL_UNREADABLE,
            f"{shown} may not be read by this server",
            "Change its permissions.",
        )
    return path


def _output(path: Path, roots: tuple[Path, ...], *, overwrite: bool) -> Path:
    path = _inside(path, roots, "the output")
    folder = path.parent
    if not folder.is_dir():
        raise Refusal(
            ErrorCode.OUTPUT_FOLDER_MISSING,
            f"the output's folder {one_line(str(folder))} does not exist",
            "Make the folder first, or choose another output.",
        )
    if path.is_dir():
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the output {one_line(str(path))} is a folder",
            "Give the engine's file name too.",
        )
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise _not_writable(path, "is no regular file")
    if path.exists() and not overwrite:
        raise Refusal(
            ErrorCode.OUTPUT_EXISTS,
            f"{one_line(str(path))} exists",
            'Give another output, or options {"overwrite": true}.',
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _not_writable(folder, "is not writable")
    return path


def _not_writable(path: Path, why: str) -> Refusal:
    return Refusal(
        ErrorCode.OUTPUT_NOT_WRITABLE,
        f"{one_line(str(path))} {why}",
        "Choose another output.",
    )


def _plugins(asked: list[str], config: SupervisorConfig) -> None:
    allowed = {path.resolve() for path in config.allowed_plugins}
    refused = [name for name in asked if Path(name).resolve() not in allowed]
    if refused:
        raise Refusal(
            ErrorCode.PLUGIN_NOT_ALLOWED,
            f"these plugin libraries are not allowed: {', '.join(map(one_line, refused))}",
            "A plugin runs any code it likes. The operator allows one with --allow-plugin FILE.",
            {"allowed": sorted(map(str, allowed))},
        )
