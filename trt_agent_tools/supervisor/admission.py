"""Judges a request before anything is started: paths, roots, backend, plugins."""

import importlib.util
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import Device

Chosen = Literal["tensorrt", "tensorrt_rtx", "replay"]

TEMPORARY_BYTES = 40
"""By so much the names of a build's temporary files may be longer than the output's."""

_MAX_PATH_BYTES = 4096 - 1


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be carried out; every path is absolute, folders without symbolic links.

    `options` are the request's, with the paths among them made absolute too. The identities are the
    device and inode of the model and of the output's folder as they were judged: the worker finds out
    by them whether something else was put there meanwhile.
    """

    model: Path
    output: Path
    manifest: Path
    backend: Chosen
    options: BuildOptions
    model_identity: tuple[int, int]
    folder_identity: tuple[int, int]


def admit(request: StartRequest, config: SupervisorConfig, devices: tuple[Device, ...]) -> Admitted:
    """Return where the build reads and writes and what builds it.

    Touches the file system, so call it in a thread: it may be a slow one.

    Raises:
        Refusal: the request cannot be carried out.
    """
    backend = choose_backend(request.backend, config, devices)
    model, model_identity = judge_model(request.model, config.roots)
    named = model.with_suffix(".engine") if request.output is None else Path(request.output)
    output, manifest, folder_identity = _output(
        named, model, config.roots, overwrite=request.options.overwrite
    )
    options = request.options.model_copy(
        update={
            "plugins": judge_plugins(request.options.plugins, config),
            "timing_cache": _timing_cache(
                request.options.timing_cache, backend, config.roots, {model, output, manifest}
            ),
        }
    )
    return Admitted(model, output, manifest, backend, options, model_identity, folder_identity)


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
        named = real if absolute.name in {"", ".", ".."} else folder / absolute.name
        # The order to the worker is JSON, which holds no other names.
        str(named).encode()
    except (OSError, RuntimeError, ValueError) as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{what} {one_line(str(path))} cannot be resolved: {one_line(str(error), 200)}",
            "Give a path in UTF-8, without NUL and without a loop of symbolic links.",
        ) from error
    if not all(any(p.is_relative_to(root) for root in roots) for p in (named, real)):
        raise Refusal(
            ErrorCode.OUTSIDE_ROOTS,
            f"{what} {one_line(str(path))} leads outside the folders that this server may use",
            f"Use a path under {', '.join(map(str, roots))}; the operator adds others with --root.",
            {"roots": [str(root) for root in roots]},
        )
    return named


def judge_model(text: str, roots: tuple[Path, ...]) -> tuple[Path, tuple[int, int]]:
    """Return the model's path, absolute, and its device and inode. It is a file that may be read.

    Raises:
        Refusal: it is not, or leads outside the roots.
    """
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
    return path, (status.st_dev, status.st_ino)


def _output(
    path: Path, model: Path, roots: tuple[Path, ...], *, overwrite: bool
) -> tuple[Path, Path, tuple[int, int]]:
    """Return where the engine and its manifest may be written, and their folder's identity."""
    path = _inside(path, roots, "the output")
    folder = path.parent
    try:
        if not folder.is_dir():
            raise Refusal(
                ErrorCode.OUTPUT_FOLDER_MISSING,
                f"the output's folder {one_line(str(folder))} does not exist",
                "Make the folder first, or choose another output.",
            )
        status = folder.stat()
        _check_length(path)
        if path.is_dir():
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"the output {one_line(str(path))} is a folder",
                "Give the engine's file name too.",
            )
        manifest = path.with_name(path.name + ".json")
        for file, what in ((path, "the output"), (manifest, "the output's manifest")):
            _check_free(file, what, model, overwrite=overwrite)
    except OSError as error:
        raise _not_writable(path, f"cannot be looked at: {error.strerror}") from error
    # Reading is for making the new names in it durable.
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _not_writable(folder, "is not writable")
    return path, manifest, (status.st_dev, status.st_ino)


def _check_length(path: Path) -> None:
    longest = min(
        os.pathconf(path.parent, "PC_NAME_MAX") - len(os.fsencode(path.name)),
        _MAX_PATH_BYTES - len(os.fsencode(path)),
    )
    if longest < TEMPORARY_BYTES:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the output's name {one_line(path.name, 60)} is too long: its temporary files need "
            f"{TEMPORARY_BYTES} bytes more",
            "Give a shorter name.",
        )


def _check_free(file: Path, what: str, model: Path, *, overwrite: bool) -> None:
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise _not_writable(file, "is no regular file")
    if not file.exists():
        return
    if file.samefile(model):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{what} {one_line(str(file))} is the model itself",
            "Give another output.",
        )
    if not overwrite:
        raise Refusal(
            ErrorCode.OUTPUT_EXISTS,
            f"{one_line(str(file))} exists",
            'Give another output, or options {"overwrite": true}.',
        )


def _not_writable(path: Path, why: str) -> Refusal:
    return Refusal(
        ErrorCode.OUTPUT_NOT_WRITABLE,
        f"{one_line(str(path))} {why}",
        "Choose another output.",
    )


def judge_plugins(asked: list[str], config: SupervisorConfig) -> list[str]:
    """Return the plugin libraries as the operator allowed them, symbolic links followed.

    Raises:
        Refusal: one of them is not allowed.
    """
    allowed = {path.resolve() for path in config.allowed_plugins}
    found: list[str] = []
    refused: list[str] = []
    for name in asked:
        try:
            path = (config.roots[0] / name).resolve()
        except (OSError, RuntimeError, ValueError):
            # A loop of symbolic links, or NUL: whatever it is, nobody allowed it.
            refused.append(name)
            continue
        (found if path in allowed else refused).append(str(path))
    if refused:
        raise Refusal(
            ErrorCode.PLUGIN_NOT_ALLOWED,
            one_line(f"these plugin libraries are not allowed: {', '.join(refused)}"),
            "A plugin runs any code it likes. The operator allows one with --allow-plugin FILE.",
            {"allowed": sorted(map(str, allowed))},
        )
    return found


def _timing_cache(
    asked: str | None, backend: Chosen, roots: tuple[Path, ...], others: set[Path]
) -> str | None:
    """Return the timing cache's path, absolute: a file in a folder that is there, or such a folder."""
    if asked is None:
        return None
    if backend == "tensorrt_rtx":
        raise Refusal(
            ErrorCode.UNSUPPORTED_OPTION,
            "timing_cache has no effect with tensorrt_rtx, which compiles for the GPU when an engine is "
            "loaded",
            "Leave timing_cache out, or build with backend tensorrt.",
            {"lacking": ["timing_cache"]},
        )
    path = _inside(Path(asked), roots, "the timing cache")
    shown = one_line(str(path))
    if path.resolve() in {other.resolve() for other in others}:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the timing cache {shown} is the model, the output or its manifest",
            "Give the cache a file of its own.",
        )
    # By os.path: no question about a path raises there.
    folder = path if os.path.isdir(path) or asked.endswith("/") else path.parent  # noqa: PTH112
    if not os.path.isdir(folder):  # noqa: PTH112
        raise Refusal(
            ErrorCode.OUTPUT_FOLDER_MISSING,
            f"the timing cache's folder {one_line(str(folder))} does not exist",
            "Make the folder first, or give another path.",
        )
    if path != folder and os.path.lexists(path) and not os.path.isfile(path):  # noqa: PTH113
        raise Refusal(
            ErrorCode.NOT_A_FILE,
            f"the timing cache {shown} is no regular file",
            "Give a file, one to be made, or a folder.",
        )
    # Reading is for making a new name in it durable.
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise Refusal(
            ErrorCode.OUTPUT_NOT_WRITABLE,
            f"the timing cache's folder {one_line(str(folder))} is not writable",
            "Give one that this server may write to: what is measured is added to the cache.",
        )
    return str(path)
